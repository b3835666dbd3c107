#!/usr/bin/env python3
"""Draws held-out prompts and prints how many the judge finds right.

    evaluate.py --moss PATH [--count 300]    with the moss program's CPU backend and golden/demo/model
    evaluate.py --torch [--count 300]        with our own torch networks in bf16
    evaluate.py --torch --sheet OUT.png      24 prompts as one picture

Prompt i of seed 9 is drawn with seed i, 128x128, 20 steps, cfg 3.
"""

import argparse
import random
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from judge import judge, read_kinds
from scenes import KINDS, PLACES, draw_pair

HERE = Path(__file__).resolve().parent


def by_moss(binary, prompts):
    with tempfile.TemporaryDirectory() as folder:
        for i, prompt in enumerate(prompts):
            out = Path(folder) / f"{i}.png"
            subprocess.run([binary, "--quiet", "--backend", "cpu", "--model", HERE / "model", "--prompt", prompt,
                            "--size", "128x128", "--steps", "20", "--cfg", "3", "--seed", str(i), "-o", out],
                           check=True, stdout=subprocess.DEVNULL)
            yield np.array(Image.open(out).convert("RGB"))


def by_torch(prompts):
    from sample import draw, load

    parts, tokenizer = load(HERE / "model")
    for start in range(0, len(prompts), 25):
        some = prompts[start:start + 25]
        yield from draw(parts, tokenizer, some, range(start, start + len(some))).numpy()


def main() -> None:
    parser = argparse.ArgumentParser()
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--moss")
    how.add_argument("--torch", action="store_true")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--sheet", type=Path)
    args = parser.parse_args()
    rng = random.Random(9)
    pairs = [draw_pair(rng, True) for _ in range(24 if args.sheet else args.count)]
    prompts = [caption for _, caption in pairs]
    if args.sheet:
        prompts[0] = "a red apple on a wooden table"
    pictures = by_torch(prompts) if args.torch else by_moss(args.moss, prompts)
    if args.sheet:
        pictures = np.stack(list(pictures)).reshape(4, 6, 128, 128, 3).transpose(0, 2, 1, 3, 4)
        Image.fromarray(pictures.reshape(512, 768, 3)).save(args.sheet)
        print("\n".join(prompts))
        return
    kinds, right, seen = read_kinds(), {}, {}
    for (scene, prompt), picture in zip(pairs, pictures):
        verdict = judge(picture, scene, kinds)
        both = verdict["object and colour"] = verdict["object"] and verdict["colour"]
        # The same by number of objects, by what is asked for and by where it stands.
        verdict["one object" if scene.kind2 < 0 else "two objects"] = both
        verdict |= {f"with {KINDS[kind]}": both for kind in (scene.kind, scene.kind2) if kind >= 0}
        verdict[f"place {PLACES[scene.place]}"] = both
        if not all(verdict.values()):
            print(f"wrong: {prompt}: {', '.join(name for name, good in verdict.items() if not good)}")
        for name, good in verdict.items():
            right[name] = right.get(name, 0) + good
            seen[name] = seen.get(name, 0) + 1
    for name in sorted(seen, key=lambda name: (name.split()[0] in ("with", "place") and " " in name, name)):
        print(f"{name}: {right[name]} of {seen[name]}, {100 * right[name] / seen[name]:.1f} %")


if __name__ == "__main__":
    main()
