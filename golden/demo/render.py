"""Draws batches of scenes with torch: anti-aliased signed distances, one pass per object."""

import math

import torch

from scenes import ABOVE, BESIDE, COLOURS, GRASS, INSIDE, KINDS, LEFT_OF, NIGHT, SKY, WATER, WOOD

STEM, LEAF, ROOF, DOOR, PANE = (100, 65, 35), (60, 150, 60), (75, 65, 80), (90, 60, 40), (255, 240, 170)


def disc(u, v, x, y, rx, ry=None):
    ry = rx if ry is None else ry
    return (torch.sqrt(((u - x) / rx) ** 2 + ((v - y) / ry) ** 2 + 1e-9) - 1) * min(rx, ry)


def box(u, v, x, y, rx, ry):
    return torch.maximum((u - x).abs() - rx, (v - y).abs() - ry)


def union(*parts):
    out = parts[0]
    for part in parts[1:]:
        out = torch.minimum(out, part)
    return out


def folded(u, v, count):
    """Distance from the middle and angle from the nearest of `count` axes, the first of which points up."""
    angle = torch.atan2(u, -v)
    step = 2 * math.pi / count
    angle = angle - torch.round(angle / step) * step
    return torch.sqrt(u * u + v * v + 1e-9), angle.abs()


def edge(x, y, a, b):
    """Signed distance to the line a-b, positive on the left of the way from a to b as the eye sees it, y pointing down."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    return ((x - a[0]) * dy - (y - a[1]) * dx) / math.hypot(dx, dy)


def triangle(u, v, top, base, half):
    slope = math.hypot(half, base - top)
    side = (u.abs() * (base - top) - half * (v - top)) / slope
    return torch.maximum(side, v - base)


def parts(kind, u, v):
    """[(signed distance, colour or None for the named one)] in the order of painting; the object fills -1..1."""
    if kind == "circle":
        return [(disc(u, v, 0, 0, 0.9), None)]
    if kind == "square":
        return [(box(u, v, 0, 0, 0.82, 0.82), None)]
    if kind == "triangle":
        return [(triangle(u, v, -0.9, 0.75, 0.95), None)]
    if kind == "star":
        r, a = folded(u, v, 5)
        inner = (0.42 * math.cos(math.pi / 5), 0.42 * math.sin(math.pi / 5))
        return [(-edge(r * torch.cos(a), -r * torch.sin(a), (1.0, 0.0), (inner[0], -inner[1])), None)]
    if kind == "ring":
        return [(torch.abs(disc(u, v, 0, 0, 0.7)) - 0.22, None)]
    if kind == "heart":
        d, y = 0.75, 0.08
        square = (u.abs() + (v - y).abs() - d) * 0.7071
        return [(union(square, disc(u.abs(), v, d / 2, y - d / 2, d * 0.7071)), None)]
    if kind == "apple":
        return [
            (box(u, v, 0.02, -0.72, 0.06, 0.24), STEM),
            (disc(u, v, 0.36, -0.74, 0.3, 0.13), LEAF),
            (union(disc(u.abs(), v, 0.26, 0.1, 0.62, 0.66), disc(u.abs(), v, 0.2, 0.3, 0.5, 0.6)), None),
        ]
    if kind == "tree":
        crown = union(disc(u, v, 0, -0.42, 0.55), disc(u.abs(), v, 0.45, -0.02, 0.42), disc(u, v, 0, 0.0, 0.45))
        return [(box(u, v, 0, 0.6, 0.15, 0.4), STEM), (crown, None)]
    if kind == "house":
        return [
            (box(u, v, 0, 0.38, 0.72, 0.55), None),
            (triangle(u, v, -0.95, -0.14, 0.98), ROOF),
            (box(u, v, 0.3, 0.6, 0.17, 0.34), DOOR),
            (box(u, v, -0.3, 0.35, 0.2, 0.18), PANE),
        ]
    if kind == "sun":
        r, a = folded(u, v, 8)
        x, y = r * torch.cos(a), r * torch.sin(a)
        return [(union(disc(u, v, 0, 0, 0.55), box(x, y, 0.83, 0, 0.17, 0.09)), None)]
    if kind == "moon":
        return [(torch.maximum(disc(u, v, 0, 0, 0.9), -disc(u, v, 0.42, -0.12, 0.74)), None)]
    if kind == "fish":
        tail = torch.maximum((v.abs() - (u - 0.3) * 0.72) * 0.8, u - 0.95)
        return [
            (union(disc(u, v, -0.22, 0, 0.74, 0.48), tail), None),
            (disc(u, v, -0.58, -0.1, 0.13), (255, 255, 255)),
            (disc(u, v, -0.58, -0.1, 0.06), (10, 10, 10)),
        ]
    r, a = folded(u, v, 6)
    x, y = r * torch.cos(a), r * torch.sin(a)
    return [(disc(x, y, 0.58, 0, 0.36, 0.3), None), (disc(u, v, 0, 0, 0.3), (250, 190, 40))]


def uniform(generator, n, low, high, device):
    return torch.rand(n, generator=generator, device=device) * (high - low) + low


def place_objects(scenes, generator, aspect):
    """Centres (x, y in 0..1 of width and height) and radii (of the shorter side) of both objects, each [n]."""
    n, device = scenes.shape[0], scenes.device
    place, layout, size, size2 = scenes[:, 0], scenes[:, 2], scenes[:, 5], scenes[:, 8]
    rand = lambda low, high: uniform(generator, n, low, high, device)
    one = torch.tensor((0.15, 0.22, 0.34), device=device)
    two = torch.tensor((0.12, 0.18, 0.22), device=device)
    cell = torch.tensor((0.22, 0.5, 0.78), device=device)
    single = scenes[:, 6] < 0
    r = torch.where(single, one[size], two[size]) * rand(0.94, 1.06)
    r2 = two[size2] * rand(0.94, 1.06)
    grid = layout.clamp(max=8)
    x, y = cell[grid % 3] + rand(-0.03, 0.03), cell[grid // 3] + rand(-0.03, 0.03)
    x2, y2 = torch.full_like(x, 0.5), torch.full_like(y, 0.5)
    row = (layout == LEFT_OF) | (layout == BESIDE)
    x = torch.where(row, 0.27 + rand(-0.03, 0.03), x)
    x2 = torch.where(row, 0.73 + rand(-0.03, 0.03), x2)
    y, y2 = torch.where(row, 0.5 + rand(-0.06, 0.06), y), torch.where(row, 0.5 + rand(-0.06, 0.06), y2)
    column = layout == ABOVE
    y, y2 = torch.where(column, 0.27 + rand(-0.03, 0.03), y), torch.where(column, 0.73 + rand(-0.03, 0.03), y2)
    x, x2 = torch.where(column, 0.5 + rand(-0.06, 0.06), x), torch.where(column, 0.5 + rand(-0.06, 0.06), x2)
    inside = layout == INSIDE
    r, r2 = torch.where(inside, 0.13 * rand(0.94, 1.06), r), torch.where(inside, 0.37 * rand(0.96, 1.04), r2)
    x, y = torch.where(inside, 0.5 + rand(-0.015, 0.015), x), torch.where(inside, 0.48 + rand(-0.015, 0.015), y)
    # On the ground objects stand: their lower ends are level.
    wood, grass = place == WOOD, place == GRASS
    foot = torch.where(wood, 0.82 + rand(-0.03, 0.03), 0.8 + rand(-0.03, 0.03))
    ground = wood | grass
    sx, sy = max(1.0, 1 / aspect), max(1.0, aspect)
    y, y2 = torch.where(ground, foot - r / sy, y), torch.where(ground, foot - r2 / sy, y2)
    edge_x, edge_y = (r + 0.02) / sx, (r + 0.02) / sy
    x = torch.minimum(torch.maximum(x, edge_x), 1 - edge_x)
    y = torch.minimum(torch.maximum(y, edge_y), 1 - edge_y)
    return (x, y, r), (x2, y2, r2)


def mix(picture, coverage, colour):
    return picture + coverage[:, None] * (colour - picture)


def rgb(values, device):
    return torch.tensor(values, device=device, dtype=torch.float32).view(1, 3, 1, 1)


def background(scenes, generator, palette, height, width):
    """Places. Textures stand still: a phase that nothing decides would be drawn by rounding errors."""
    n, device = scenes.shape[0], scenes.device
    place = scenes[:, 0]
    y = (torch.arange(height, device=device).float() + 0.5).view(1, height, 1) / height
    x = (torch.arange(width, device=device).float() + 0.5).view(1, 1, width) / width
    picture = palette[scenes[:, 1]].view(n, 3, 1, 1).expand(n, 3, height, width).clone()

    def some(which):
        index = (place == which).nonzero()[:, 0]
        rand = lambda low, high: uniform(generator, len(index), low, high, device).view(-1, 1, 1)
        return index, rand

    def sky(index, rand):
        shade = y[:, None] * (rgb((195, 228, 250), device) - rgb((120, 185, 240), device))
        out = (rgb((120, 185, 240), device) + shade).expand(len(index), 3, height, width)
        for _ in range(2):
            cx, cy, w = rand(0, 1), rand(0.05, 0.4), rand(0.1, 0.2)
            cloud = torch.minimum(disc((x - cx) / w, (y - cy) / w, 0, 0, 1.0, 0.4),
                                  disc((x - cx) / w, (y - cy) / w, 0.2, -0.25, 0.5, 0.4))
            out = mix(out, (0.5 - cloud * 8).clamp(0, 1) * 0.85, rgb((250, 252, 255), device))
        return out

    index, rand = some(WOOD)
    if len(index):
        out = rgb((236, 228, 210), device).expand(len(index), 3, height, width)
        top = 0.54
        table = ((y - top) * height + 0.5).clamp(0, 1).expand(1, -1, width)
        grain = 0.5 + 0.5 * torch.sin(y * 150 + 2.2 * torch.sin(x * 9))
        plank = (((y - top) * 5.5) % 1 < 0.09).float()
        wood = rgb((182, 130, 78), device) + (grain[:, None] - 0.5) * rgb((16, 14, 10), device)
        wood = wood + plank[:, None] * rgb((-42, -36, -26), device)
        picture[index] = out + table[:, None] * (wood - out)
    index, rand = some(SKY)
    if len(index):
        picture[index] = sky(index, rand)
    index, rand = some(GRASS)
    if len(index):
        out = sky(index, rand)
        blades = torch.sin(x * 95 + 3 * torch.sin(y * 40))
        grass = rgb((112, 184, 80), device) + blades[:, None] * rgb((10, 12, 8), device)
        field = ((y - 0.56) * height + 0.5).clamp(0, 1).expand(1, -1, width)
        picture[index] = out + field[:, None] * (grass - out)
    index, rand = some(NIGHT)
    if len(index):
        out = rgb((18, 22, 58), device).expand(len(index), 3, height, width)
        for _ in range(12):
            star = torch.sqrt(((x - rand(0, 1)) * width) ** 2 + ((y - rand(0, 1)) * height) ** 2)
            out = mix(out, (1.6 - star).clamp(0, 1), rgb((235, 235, 220), device))
        picture[index] = out
    index, rand = some(WATER)
    if len(index):
        wave = torch.sin(y * 60 + 1.5 * torch.sin(x * 14))
        picture[index] = rgb((52, 122, 192), device) + (wave[:, None] - 0.2).clamp(min=0) * rgb((46, 46, 34), device)
    return picture


@torch.no_grad()
def render(scenes: torch.Tensor, height: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """Scenes [n, 10] to pictures [n, 3, height, width] in -1..1. Everything that no number says is drawn at random."""
    n, device = scenes.shape[0], scenes.device
    scenes = scenes.long()
    palette = torch.tensor(list(COLOURS.values()), device=device, dtype=torch.float32)
    picture = background(scenes, generator, palette, height, width)
    first, second = place_objects(scenes, generator, height / width)
    side = min(height, width)
    ys = (torch.arange(height, device=device).float() + 0.5).view(1, height, 1)
    xs = (torch.arange(width, device=device).float() + 0.5).view(1, 1, width)
    # The second object lies under the first.
    for (cx, cy, radius), kinds, colours in ((second, scenes[:, 6], scenes[:, 7]), (first, scenes[:, 3], scenes[:, 4])):
        tint = torch.rand((n, 3), generator=generator, device=device) * 16 - 8
        for number, kind in enumerate(KINDS):
            index = (kinds == number).nonzero()[:, 0]
            if len(index) == 0:
                continue
            pixels = (radius[index] * side).view(-1, 1, 1)
            u = (xs - cx[index].view(-1, 1, 1) * width) / pixels
            v = (ys - cy[index].view(-1, 1, 1) * height) / pixels
            own = (palette[colours[index]] + tint[index]).view(-1, 3, 1, 1)
            canvas = picture[index]
            for distance, colour in parts(kind, u, v):
                colour = own if colour is None else rgb(colour, device)
                canvas = mix(canvas, (0.5 - distance * pixels).clamp(0, 1), colour)
            picture[index] = canvas
    return (picture / 127.5 - 1).clamp(-1, 1)
