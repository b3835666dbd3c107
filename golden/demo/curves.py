#!/usr/bin/env python3
"""Draws the loss curves of record/*.log to record/loss.png: one panel a log, logarithmic loss over steps."""

import json
import math
from pathlib import Path

from PIL import Image, ImageDraw

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT, EDGE = 480, 320, 40


def main() -> None:
    sheet = Image.new("RGB", (2 * WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(sheet)
    for panel, name in enumerate(("vae", "dit")):
        rows = [json.loads(line) for line in (HERE / "record" / f"{name}.log").read_text().splitlines()]
        points = [(row["step"], math.log10(row["loss"])) for row in rows if "loss" in row]
        last, low, high = points[-1][0], min(y for _, y in points), max(y for _, y in points)
        left = panel * WIDTH
        place = [(left + EDGE + x / last * (WIDTH - 2 * EDGE), HEIGHT - EDGE - (y - low) / (high - low) * (HEIGHT - 2 * EDGE))
                 for x, y in points]
        draw.rectangle((left + EDGE, EDGE, left + WIDTH - EDGE, HEIGHT - EDGE), outline="gray")
        draw.line(place, fill=(40, 80, 220), width=2)
        draw.text((left + EDGE, 12), f"{name}: loss {10 ** high:.3g} to {10 ** low:.3g} (log), {last} steps", fill="black")
    sheet.save(HERE / "record" / "loss.png")


if __name__ == "__main__":
    main()
