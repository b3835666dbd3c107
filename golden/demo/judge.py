#!/usr/bin/env python3
"""Judges whether a picture shows what its scene says: numpy alone, no network.

A pixel has the colour of the nearest of the twelve names and the place's own colours. The pixels of an object's colour are
its silhouette; its occupancy in a square of 24 x 24 around its bounds is compared with the average of every kind
(judge_kinds.txt, made by `judge.py --calibrate` from the renderer's pictures). Position and relation are read off the bounds.

    judge.py --calibrate     writes judge_kinds.txt
    judge.py --check         errors on the renderer's own pictures, and on pictures of other scenes
"""

import random
import sys
from pathlib import Path

import numpy as np

from scenes import (
    ABOVE, BESIDE, COLOURS, GRASS, INSIDE, KINDS, LEFT_OF, NIGHT, PLAIN, SKY, WATER, WOOD, Scene, draw_pair,
)

HERE = Path(__file__).resolve().parent
CELLS = 24
PLACE_COLOURS = {
    PLAIN: [], WOOD: [(236, 228, 210), (182, 130, 78), (150, 102, 56)],
    SKY: [(120, 185, 240), (160, 208, 246), (195, 228, 250), (248, 251, 255)],
    GRASS: [(120, 185, 240), (160, 208, 246), (195, 228, 250), (248, 251, 255), (112, 184, 80), (104, 172, 74), (122, 196, 88)],
    NIGHT: [(18, 22, 58), (130, 132, 140), (235, 235, 220)],
    WATER: [(52, 122, 192), (90, 160, 220), (70, 140, 206)],
}
# Parts that have a colour of their own, whatever the thing's.
PART_COLOURS = {
    "apple": [(100, 65, 35), (60, 150, 60)], "tree": [(100, 65, 35)], "flower": [(250, 190, 40)],
    "house": [(75, 65, 80), (90, 60, 40), (255, 240, 170)],
}
PALETTE = np.array(list(COLOURS.values()), np.float32)


def labels(picture: np.ndarray, scene: Scene) -> np.ndarray:
    """Per pixel the number of its colour's name, 12 and up for the place's own colours, -1 for a part's or none."""
    named = [KINDS[kind] for kind in (scene.kind, scene.kind2) if kind >= 0]
    parts = [colour for kind in named for colour in PART_COLOURS.get(kind, [])]
    own = np.array(PLACE_COLOURS[scene.place] + parts, np.float32).reshape(-1, 3)
    distance = ((picture[..., None, :].astype(np.float32) - np.concatenate((PALETTE, own))) ** 2).sum(-1)
    nearest = distance.argmin(-1)
    nearest = np.where(nearest >= len(PALETTE) + len(PLACE_COLOURS[scene.place]), -1, nearest)
    return np.where(distance.min(-1) < 75 ** 2, nearest, -1)


def solid(mask: np.ndarray) -> np.ndarray:
    """Pixels most of whose 3 x 3 neighbours agree: drops the thin rims of smoothed edges."""
    padded = np.pad(mask.astype(np.int8), 1)
    h, w = mask.shape
    count = sum(padded[i:i + h, j:j + w] for i in range(3) for j in range(3))
    return mask & (count >= 5)


def silhouette(found: np.ndarray, colour: int):
    """The pixels of a colour around their median, or None where there are too few."""
    mask = solid(found == colour)
    if mask.sum() < 0.002 * mask.size:
        return None
    for _ in range(2):
        ys, xs = np.nonzero(mask)
        reach = 2.4 * np.sqrt(len(ys) / np.pi)
        far = (ys - np.median(ys)) ** 2 + (xs - np.median(xs)) ** 2 > reach ** 2
        mask = mask.copy()
        mask[ys[far], xs[far]] = False
    return mask if mask.sum() >= 12 else None


def bounds(mask):
    ys, xs = np.nonzero(mask)
    return xs.min(), ys.min(), xs.max() + 1, ys.max() + 1


def occupancy(mask: np.ndarray) -> np.ndarray:
    x0, y0, x1, y1 = bounds(mask)
    side = max(x1 - x0, y1 - y0)
    steps = (np.arange(CELLS * 2) + 0.5) / (CELLS * 2) * side - side / 2
    ys, xs = np.floor((y0 + y1) / 2 + steps).astype(int), np.floor((x0 + x1) / 2 + steps).astype(int)
    h, w = mask.shape
    inside = ((ys >= 0) & (ys < h))[:, None] & ((xs >= 0) & (xs < w))[None]
    cells = mask[np.clip(ys, 0, h - 1)[:, None], np.clip(xs, 0, w - 1)[None]] & inside
    return cells.reshape(CELLS, 2, CELLS, 2).mean((1, 3))


def filled(mask: np.ndarray) -> np.ndarray:
    """With every row's pixels between its ends: what a container covers."""
    left = np.maximum.accumulate(mask, 1)
    return left & np.maximum.accumulate(mask[:, ::-1], 1)[:, ::-1]


def read_kinds() -> np.ndarray:
    rows = (HERE / "judge_kinds.txt").read_text().split()
    cells = np.array([[int(c) for c in row] for row in rows if row[0].isdigit()], np.float32) / 9
    return cells.reshape(-1, CELLS, CELLS)


def kind_of(cells: np.ndarray, kinds: np.ndarray, names=None) -> int:
    names = list(range(len(KINDS))) if names is None else names
    return names[int(((cells - kinds[names]) ** 2).mean((1, 2)).argmin())]


def judge(picture: np.ndarray, scene: Scene, kinds: np.ndarray) -> dict:
    """{"colour", "object", "place", and where the scene says one "position" or "relation"}: whether each is right."""
    found = labels(picture, scene)
    h, w = found.shape
    first = silhouette(found, scene.colour)
    second = silhouette(found, scene.colour2) if scene.kind2 >= 0 else None
    two = scene.kind2 >= 0
    inside = two and scene.layout == INSIDE
    verdict = {"colour": first is not None and (second is not None or not two)}
    cover = None if second is None else (filled(second) if inside else second)
    right = first is not None and kind_of(occupancy(first), kinds) == scene.kind
    if two:
        right = right and second is not None and kind_of(occupancy(cover), kinds) == scene.kind2
    verdict["object"] = bool(right)
    own = found == scene.place_colour if scene.place == PLAIN else found >= len(PALETTE)
    verdict["place"] = bool(own.mean() > 0.3)
    if two:
        verdict["relation"] = False
        if first is not None and second is not None:
            ax0, ay0, ax1, ay1 = bounds(first)
            bx0, by0, bx1, by1 = bounds(cover)
            dx, dy = (bx0 + bx1 - ax0 - ax1) / 2 / w, (by0 + by1 - ay0 - ay1) / 2 / h
            if scene.layout in (LEFT_OF, BESIDE):
                good = dx > 0.2 and abs(dy) < 0.3
            elif scene.layout == ABOVE:
                good = dy > 0.2 and abs(dx) < 0.3
            else:
                good = ax0 >= bx0 and ay0 >= by0 and ax1 <= bx1 and ay1 <= by1 and abs(dx) < 0.12 and abs(dy) < 0.15
            verdict["relation"] = bool(good)
    elif scene.said & 4:
        verdict["position"] = False
        if first is not None:
            x0, y0, x1, y1 = bounds(first)
            x, y = (x0 + x1) / 2 / w, (y0 + y1) / 2 / h
            verdict["position"] = all(
                (at < 0.42, 0.36 < at < 0.64, at > 0.58)[cell]
                for at, cell in ((x, scene.layout % 3), (y, scene.layout // 3)))
    return verdict


def drawn(count, seed, sizes=((128, 128),)):
    """(scene, picture) pairs by the renderer."""
    import torch

    from render import render

    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    for start in range(0, count, 50):
        scenes = [draw_pair(rng, True)[0] for _ in range(min(50, count - start))]
        height, width = sizes[start // 50 % len(sizes)]
        pictures = render(torch.tensor(scenes), height, width, generator)
        levels = ((pictures / 2 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).numpy()
        yield from zip(scenes, levels)


def calibrate():
    sums, counts = np.zeros((len(KINDS), CELLS, CELLS)), np.zeros(len(KINDS))
    for scene, picture in drawn(600, 1):
        mask = silhouette(labels(picture, scene), scene.colour)
        if mask is not None:
            sums[scene.kind] += occupancy(mask)
            counts[scene.kind] += 1
    with open(HERE / "judge_kinds.txt", "w", encoding="utf-8") as file:
        for name, cells in zip(KINDS, sums / counts[:, None, None]):
            file.write(f"{name}\n" + "".join("".join(str(int(v * 9 + 0.5)) for v in row) + "\n" for row in cells))
    print(dict(zip(KINDS, counts.astype(int).tolist())))


def tally(pairs, kinds):
    right, seen = {}, {}
    for scene, picture in pairs:
        for name, good in judge(picture, scene, kinds).items():
            right[name] = right.get(name, 0) + good
            seen[name] = seen.get(name, 0) + 1
    return {name: (right[name], seen[name]) for name in seen}


def check():
    kinds = read_kinds()
    pairs = list(drawn(400, 2))
    print("right pictures", tally(pairs, kinds))
    others = [(scene, pairs[(i + 1) % len(pairs)][1]) for i, (scene, _) in enumerate(pairs)]
    print("pictures of other scenes", tally(others, kinds))
    wrong = []
    rng = random.Random(3)
    for scene, picture in pairs:
        wrong.append((scene._replace(kind=(scene.kind + rng.randrange(1, 13)) % 13), picture))
    print("another kind asked for", tally(wrong, kinds))


if __name__ == "__main__":
    calibrate() if "--calibrate" in sys.argv else check()
