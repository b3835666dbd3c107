"""Scenes and their captions: a small world with a grammar.

A scene is ten small whole numbers (see `Scene`). A caption is one of many sentences that say the same scene. One scene in
sixteen, by its checksum, is held out: training never sees it, the judged prompts are made of nothing else.
"""

import random
import zlib
from typing import NamedTuple

KINDS = (
    "circle", "square", "triangle", "star", "ring", "heart",
    "apple", "tree", "house", "sun", "moon", "fish", "flower",
)
PLACES = ("plain", "wood", "sky", "grass", "night", "water")
PLAIN, WOOD, SKY, GRASS, NIGHT, WATER = range(6)
COLOURS = {
    "red": (220, 40, 40), "orange": (245, 140, 30), "yellow": (250, 220, 50), "green": (40, 160, 70),
    "blue": (40, 80, 220), "purple": (130, 50, 170), "pink": (250, 140, 190), "brown": (130, 80, 45),
    "black": (25, 25, 25), "white": (250, 250, 250), "gray": (140, 140, 140), "cyan": (60, 210, 220),
}
COLOUR_NAMES = tuple(COLOURS)
WHITE = COLOUR_NAMES.index("white")
SMALL, MEDIUM, LARGE = range(3)
# Layouts. 0 to 8 are the nine positions row by row; a single object that says no position stands in the middle.
MIDDLE = 4
# BESIDE is "A and B": A is on the left, as one reads.
LEFT_OF, ABOVE, INSIDE, BESIDE = 9, 10, 11, 12
CONTAINERS = ("circle", "square", "heart")
# Colours that can hardly be told from a place.
HIDDEN = {
    WOOD: {"brown", "orange", "white"}, SKY: {"white", "cyan"}, GRASS: {"green", "white", "cyan"},
    NIGHT: {"black"}, WATER: {"blue", "cyan"}, PLAIN: set(),
}
USUAL = {"apple": "red", "tree": "green", "sun": "yellow", "moon": "yellow", "fish": "orange", "flower": "pink"}


class Scene(NamedTuple):
    """`kind2` is -1 for one object; `said` tells what the caption must name (bits: colour 1, place 2, position 4)."""

    place: int
    place_colour: int
    layout: int
    kind: int
    colour: int
    size: int
    kind2: int
    colour2: int
    size2: int
    said: int

    def held_out(self) -> bool:
        return zlib.crc32(bytes(v & 255 for v in self)) % 16 == 0


def colour_for(rng, place, place_colour, others=()):
    hidden = HIDDEN[place]
    free = [
        i for i, name in enumerate(COLOUR_NAMES)
        if name not in hidden and i not in others and not (place == PLAIN and i == place_colour)
    ]
    return rng.choice(free)


def draw_scene(rng: random.Random) -> Scene:
    place = rng.choices(range(6), (52, 14, 9, 9, 8, 8))[0]
    said = 2 if place != PLAIN or rng.random() < 0.6 else 0
    place_colour = rng.randrange(12) if said and place == PLAIN else WHITE
    ground = place in (WOOD, GRASS)
    two = rng.random() < 0.42
    kind = rng.randrange(len(KINDS))
    colour = colour_for(rng, place, place_colour)
    size = rng.choices(range(3), (25, 50, 25))[0]
    if two:
        layout = rng.choice((LEFT_OF, BESIDE)) if ground else rng.choices(
            (LEFT_OF, ABOVE, INSIDE, BESIDE), (33, 33, 22, 12))[0]
        kind2 = rng.randrange(len(KINDS))
        colour2 = colour_for(rng, place, place_colour, (colour,))
        size2 = rng.choices(range(3), (20, 60, 20))[0]
        if layout == INSIDE:
            kind2, size, size2 = KINDS.index(rng.choice(CONTAINERS)), SMALL, LARGE
        elif size == size2:
            size = size2 = MEDIUM
        return Scene(place, place_colour, layout, kind, colour, size, kind2, colour2, size2, said | 1)
    layout = MIDDLE
    if not ground and rng.random() < 0.6:
        said, layout = said | 4, rng.randrange(9)
        size = min(size, MEDIUM)
    name = KINDS[kind]
    usual = COLOUR_NAMES.index(USUAL[name]) if name in USUAL else -1
    visible = usual >= 0 and COLOUR_NAMES[usual] not in HIDDEN[place] and not (place == PLAIN and usual == place_colour)
    if visible and rng.random() < 0.25:
        colour = usual
    elif name == "tree" and place == GRASS and rng.random() < 0.3:
        colour = usual
    said |= 0 if colour == usual and rng.random() < 0.3 else 1
    return Scene(place, place_colour, layout, kind, colour, size, -1, 0, 0, said)


SIZE_WORDS = (("small", "little", "tiny"), ("", "", "medium"), ("large", "big", "huge"))
OTHER_NAMES = {"gray": "grey", "purple": "violet", "cyan": "turquoise"}
ROWS = ("top", "", "bottom")
COLUMNS = ("left", "", "right")


def article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def colour_word(rng, colour):
    name = COLOUR_NAMES[colour]
    return OTHER_NAMES[name] if name in OTHER_NAMES and rng.random() < 0.3 else name


def noun(rng, kind, colour, size, say_colour=True):
    words = [rng.choice(SIZE_WORDS[size])]
    if size == MEDIUM and rng.random() < 0.8:
        words = [""]
    words.append(colour_word(rng, colour) if say_colour else "")
    words.append(KINDS[kind])
    return article(" ".join(word for word in words if word))


def position_phrase(rng, layout):
    row, column = ROWS[layout // 3], COLUMNS[layout % 3]
    if row and column:
        return rng.choice((f"in the {row} {column} corner", f"in the {row} {column}", f"at the {row} {column}"))
    if row:
        return f"at the {row}"
    if column:
        return rng.choice((f"on the {column}", f"on the {column} side", f"at the {column}"))
    return rng.choice(("in the center", "in the middle", "in the centre"))


def place_phrase(rng, scene):
    if scene.place == PLAIN:
        colour = colour_word(rng, scene.place_colour)
        return rng.choice((f"on {article(colour)} background", f"on {article(colour)} background",
                           f"against {article(colour)} background", f"with {article(colour)} background"))
    return rng.choice({
        WOOD: ("on a wooden table", "on a wooden table", "on a table", "on the wooden table"),
        SKY: ("in the sky", "in the blue sky", "against the sky"),
        GRASS: ("on grass", "on the grass", "on green grass", "in a meadow"),
        NIGHT: ("at night", "in the night", "in the night sky"),
        WATER: ("in the water", "in water", "on the water"),
    }[scene.place])


def caption(rng: random.Random, scene: Scene) -> str:
    first = noun(rng, scene.kind, scene.colour, scene.size, scene.said & 1)
    if scene.kind2 < 0:
        words = first + (" " + position_phrase(rng, scene.layout) if scene.said & 4 else "")
    else:
        second = noun(rng, scene.kind2, scene.colour2, scene.size2)
        side = rng.random()
        if scene.layout == LEFT_OF:
            words = (rng.choice((f"{first} to the left of {second}", f"{first} left of {second}")) if side < 0.6
                     else rng.choice((f"{second} to the right of {first}", f"{second} right of {first}")))
        elif scene.layout == ABOVE:
            words = (rng.choice((f"{first} above {second}", f"{first} over {second}")) if side < 0.6
                     else rng.choice((f"{second} below {first}", f"{second} under {first}")))
        elif scene.layout == INSIDE:
            words = rng.choice((f"{first} inside {second}", f"{first} in {second}", f"{first} inside of {second}"))
        else:
            # Without an order the sampler could not decide which side is whose until both had taken of each other.
            words = f"{first} and {second}"
    if scene.said & 2:
        where = place_phrase(rng, scene)
        if rng.random() < 0.1:
            return finish(rng, f"{where}, {words}")
        words = f"{words} {where}"
    head = rng.choice(("", "", "", "", "a picture of ", "an image of ", "a drawing of ", "there is "))
    return finish(rng, head + words)


def finish(rng: random.Random, words: str) -> str:
    if rng.random() < 0.15:
        words = words[0].upper() + words[1:]
    return words + ("." if rng.random() < 0.15 else "")


def draw_pair(rng: random.Random, held_out: bool = False) -> tuple[Scene, str]:
    while True:
        scene = draw_scene(rng)
        if scene.held_out() == held_out:
            return scene, caption(rng, scene)
