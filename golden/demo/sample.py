"""Draws pictures with the demo networks: the official euler schedule, guidance, the skipped block, the decoder."""

import json
from pathlib import Path

import torch

from networks import SKIP

PREFIX, SUFFIX = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n<think>\n"


def grid(steps: int, shift: float) -> torch.Tensor:
    v = torch.linspace(1.0, shift / (999 + shift), steps)
    return shift * v / (1 + (shift - 1) * v)


def schedule(steps: int, shift: float) -> list[float]:
    """Sigmas snapped to the 1000 of training, repeats removed, then 0."""
    fine = grid(1000, 1.0)
    snapped = [fine[(fine - s).abs().argmin()].item() for s in grid(steps, shift)]
    kept = [s for i, s in enumerate(snapped) if i == 0 or s != snapped[i - 1]]
    return kept + [0.0]


def token_ids(tokenizer, prompts, length=None):
    """(ids [B, L], lengths [B]) of prompts in the chat format."""
    texts = [PREFIX + prompt.strip() + SUFFIX for prompt in prompts]
    rows = [entry.ids for entry in tokenizer.encode_batch(texts, add_special_tokens=False)]
    lengths = torch.tensor([len(row) for row in rows])
    length = length or int(lengths.max())
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, :len(row)] = torch.tensor(row)
    return ids, lengths


@torch.no_grad()
def draw(parts, tokenizer, prompts, seeds, height=128, width=128, steps=20, cfg=3.0, shift=5.0, negative="", skip=SKIP):
    """Levels [B, H, W, 3] (uint8). `parts` is (text encoder, DiT, VAE) on one device, each in its dtype."""
    encoder, dit, vae = parts
    device = next(dit.parameters()).device
    b = len(prompts)
    ids, lengths = token_ids(tokenizer, list(prompts) + [negative])
    states, lengths = encoder(ids.to(device)), lengths.to(device)
    cond, uncond = (states[:b], lengths[:b]), (states[b:].expand(b, -1, -1), lengths[b:].expand(b))
    skipped = {layer: torch.ones(b, dtype=torch.bool, device=device) for layer in skip}
    shape = (128, height // 16, width // 16)
    x = torch.stack([torch.randn(shape, generator=torch.Generator().manual_seed(s)) for s in seeds]).to(device)
    sigmas = schedule(steps, shift)
    for sigma, following in zip(sigmas[:-1], sigmas[1:]):
        t = torch.full((b,), sigma * 1000, device=device)
        velocity = dit(x, t, *cond).float()
        if cfg != 1:
            without = dit(x, t, *uncond, skipped).float()
            velocity = without + cfg * (velocity - without)
        x = x + (following - sigma) * velocity
    picture = vae(x).float().permute(0, 2, 3, 1).clamp(-1, 1)
    return ((picture / 2 + 0.5) * 255).round().to(torch.uint8).cpu()


def load(folder: Path, dtype=torch.bfloat16):
    """(text encoder, DiT, VAE) and the tokenizer of a folder."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    from networks import Dit, TextEncoder, Vae

    encoder, dit, vae = TextEncoder(), Dit(), Vae()
    prefix = "model.language_model."
    tensors = load_file(folder / "text_encoder" / "model.safetensors")
    encoder.load_state_dict({name.removeprefix(prefix): t for name, t in tensors.items()})
    dit.load_state_dict(load_file(folder / "transformer" / "diffusion_pytorch_model.safetensors"))
    vae.load_state_dict(load_file(folder / "vae" / "diffusion_pytorch_model.safetensors"))
    parts = tuple(m.eval().requires_grad_(False) for m in (encoder.to(dtype), dit.to(dtype), vae.float()))
    return parts, Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))


def dump_json(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
