#!/usr/bin/env python3
"""Holds a checkpoint folder against the public classes: every tensor's name and shape, then one small run of each part.

    check_synth.py FOLDER [--names-only]

Names and shapes come from the files' headers and from the classes on torch's meta device, so a folder of any size is checked
in little memory. The run loads all weights (--names-only leaves it out) and asks that activations neither fade nor grow.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

import torch
from diffsynth.models.moss_image_dit import MOSSImageDiT
from diffusers import AutoencoderKLFlux2
from transformers import Qwen3_5TextConfig, Qwen3_5TextModel

import moss_torch

# Tensors that the official files hold and the pipeline leaves unread.
UNUSED = {
    "text_encoder": ("visual.", "model.visual.", "lm_head.", "mtp."),
    "transformer": ("rope.bands",),
    "vae": ("encoder.", "quant_conv.", "bn.num_batches_tracked"),
}
# A root mean square outside of these would be no fair stand-in for a trained network's activations.
LOWEST, HIGHEST = 0.05, 50.0
PROMPT = "a red apple on the table"
SIDE = 64


def headers(folder: Path) -> dict:
    """Shape of every tensor in a part's files; a name in two files or outside the index is an error."""
    shapes, places = {}, {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        end = max(entry["data_offsets"][1] for entry in header.values())
        if file.stat().st_size != 8 + length + end:
            sys.exit(f"{file}: {file.stat().st_size} bytes, {8 + length + end} expected")
        for name, entry in header.items():
            if name in shapes:
                sys.exit(f"{file}: {name} is in {places[name]} too")
            shapes[name], places[name] = tuple(entry["shape"]), file.name
    for index in folder.glob("*.index.json"):
        if json.loads(index.read_text())["weight_map"] != places:
            sys.exit(f"{index}: it does not say where the tensors are")
    return shapes


def public_shapes(part: str, config: dict) -> dict:
    """Shapes of the public class's state dict, without memory for it."""
    with torch.device("meta"):
        if part == "text_encoder":
            model = Qwen3_5TextModel(Qwen3_5TextConfig(**config.get("text_config", config)))
        elif part == "transformer":
            fields = ("dim", "ffn_dim", "num_heads", "num_layers", "text_dim", "freq_dim", "latent_channels", "rope_base")
            model = MOSSImageDiT(**{k: config[k] for k in fields})
        else:
            model = AutoencoderKLFlux2(**{k: v for k, v in config.items() if not k.startswith("_")})
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def strip(part: str, shapes: dict) -> dict:
    """Without unused tensors and prefixes."""
    used = {}
    for name, shape in shapes.items():
        if name.startswith(UNUSED[part]):
            continue
        if part == "text_encoder":
            name = next((name[len(p):] for p in moss_torch.TEXT_PREFIXES if name.startswith(p)), name)
        used[name] = shape
    return used


def check_names(folder: Path) -> None:
    for part in UNUSED:
        config = json.loads((folder / part / "config.json").read_text())
        ours, theirs = strip(part, headers(folder / part)), strip(part, public_shapes(part, config))
        missing, unexpected = sorted(theirs.keys() - ours.keys()), sorted(ours.keys() - theirs.keys())
        other = [(n, ours[n], theirs[n]) for n in sorted(ours.keys() & theirs.keys()) if ours[n] != theirs[n]]
        if missing or unexpected or other:
            sys.exit(f"{part}: missing {missing[:5]}, unexpected {unexpected[:5]}, of another shape {other[:5]}")
        elements = sum(torch.Size(shape).numel() for shape in ours.values())
        print(f"{part}: {len(ours)} tensors, {elements / 1e6:.1f} M elements, names and shapes as the public class has them")


def rms(name: str, tensor: torch.Tensor) -> None:
    value = tensor.float().square().mean().sqrt().item()
    print(f"{name}: rms {value:.3f}")
    if not LOWEST <= value <= HIGHEST:
        sys.exit(f"{name}: rms {value}, {LOWEST} to {HIGHEST} expected")


@torch.no_grad()
def check_run(folder: Path) -> None:
    ids = moss_torch.tokenize(folder, PROMPT, 4096)
    config = json.loads((folder / "text_encoder" / "config.json").read_text())
    vocab = config.get("text_config", config)["vocab_size"]
    if ids.max() >= vocab:
        sys.exit(f"tokenizer: id {ids.max()}, below vocab_size {vocab} expected")
    print(f"tokenizer: {len(ids)} ids, the highest {ids.max()} of {vocab}")
    states = moss_torch.encode(moss_torch.text_encoder(folder, torch.bfloat16), ids)
    rms("text states", states)
    latents = moss_torch.noise(1, SIDE, SIDE)
    model, taps = moss_torch.dit(folder, torch.bfloat16), {}
    with moss_torch.block_taps(model, taps):
        velocity = model(latents.to(torch.bfloat16), torch.tensor(800.0), states)
    for name in (min(taps), max(taps)):
        rms(f"DiT {name}", torch.from_numpy(taps[name]))
    rms("velocity", velocity)
    del model
    picture, _ = moss_torch.decode(moss_torch.vae(folder), latents)
    picture = torch.from_numpy(picture)
    rms("picture", picture)
    # A decoder that only saturates would hide every difference behind the clamp.
    clamped = (picture.abs() == 1).float().mean().item()
    print(f"picture: {100 * clamped:.1f} % of the values at the clamp")
    if clamped > 0.5:
        sys.exit("picture: more than half of the values at the clamp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--names-only", action="store_true", help="no weights are loaded")
    args = parser.parse_args()
    check_names(args.folder)
    if not args.names_only:
        check_run(args.folder)


if __name__ == "__main__":
    main()
