"""The official pipeline from public packages, stage by stage, on a CPU.

Text encoder: transformers' Qwen3_5TextModel. DiT: diffsynth's MOSSImageDiT. Schedule: diffsynth's FlowMatchScheduler
("MOSS-Image"). VAE: diffusers' AutoencoderKLFlux2. All read a checkpoint folder in the official layout. A run in bf16 and
a run in fp32 use the same bf16 weights.
"""

import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from diffsynth.diffusion.flow_match import FlowMatchScheduler
from diffsynth.models.moss_image_dit import MOSSImageDiT
from diffsynth.models.moss_image_text_encoder import _MOSSImageRotaryEmbedding
from diffusers import AutoencoderKLFlux2
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import Qwen3_5TextConfig, Qwen3_5TextModel

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
PROMPT_PREFIX = "<|im_start|>user\n"
PROMPT_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n"
TEXT_PREFIXES = ("model.language_model.", "language_model.", "model.")
TEXT_UNUSED = ("visual.", "model.visual.", "lm_head.", "mtp.")


def state_dict(folder: Path) -> dict:
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def load_strictly(module, tensors, unused=()):
    """Loads all tensors; fails on a missing or an unknown one."""
    result = module.load_state_dict(tensors, strict=False)
    missing = [k for k in result.missing_keys if k not in unused]
    unexpected = [k for k in result.unexpected_keys if k not in unused]
    if missing or unexpected:
        raise SystemExit(f"{type(module).__name__}: missing {missing[:5]}, unexpected {unexpected[:5]}")
    return module.eval().requires_grad_(False)


def tokenize(folder: Path, prompt: str, max_seq: int) -> np.ndarray:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    ids = tokenizer.encode(PROMPT_PREFIX + prompt.strip() + PROMPT_SUFFIX, add_special_tokens=False).ids
    return np.array(ids[:max_seq], dtype=np.int64)


def text_encoder(folder: Path, dtype: torch.dtype, attention: str = "sdpa"):
    config = json.loads((folder / "text_encoder" / "config.json").read_text())
    config = config.get("text_config", config)
    config = Qwen3_5TextConfig(**{k: v for k, v in config.items() if k != "architectures"})
    config._attn_implementation = attention
    with torch.device("meta"):
        model = Qwen3_5TextModel(config)
    tensors = {}
    for name, tensor in state_dict(folder / "text_encoder").items():
        if name.startswith(TEXT_UNUSED):
            continue
        for prefix in TEXT_PREFIXES:
            if name.startswith(prefix):
                name = name[len(prefix):]
                break
        tensors[name] = tensor.to(dtype) if tensor.dtype == torch.bfloat16 else tensor
    model.load_state_dict(tensors, strict=True, assign=True)
    model.rotary_emb = _MOSSImageRotaryEmbedding(config=config)
    return model.eval().requires_grad_(False)


def dit(folder: Path, dtype: torch.dtype):
    config = json.loads((folder / "transformer" / "config.json").read_text())
    fields = ("dim", "ffn_dim", "num_heads", "num_layers", "text_dim", "freq_dim", "latent_channels", "rope_base")
    model = MOSSImageDiT(**{k: config[k] for k in fields if k in config})
    tensors = {k: v.to(dtype) for k, v in state_dict(folder / "transformer").items()}
    return load_strictly(model.to(dtype), tensors, unused=("rope.bands",))


def vae(folder: Path):
    config = {
        k: v for k, v in json.loads((folder / "vae" / "config.json").read_text()).items() if not k.startswith("_")
    }
    model = AutoencoderKLFlux2(**config)
    tensors = {k: v.float() for k, v in state_dict(folder / "vae").items()}
    encoder = [k for k in model.state_dict() if k.startswith(("encoder.", "quant_conv.", "bn.num_batches"))]
    return load_strictly(model, tensors, unused=encoder)


@torch.no_grad()
def encode(model, ids: np.ndarray) -> torch.Tensor:
    return model(input_ids=torch.from_numpy(ids)[None], use_cache=False).last_hidden_state


def sigmas(steps: int, shift: float) -> np.ndarray:
    values, _ = FlowMatchScheduler.set_timesteps_moss_image(steps, shift=shift)
    return torch.cat([values, torch.zeros(1)]).numpy()


def noise(seed: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn((1, 128, height // 16, width // 16), generator=generator)


@contextmanager
def block_taps(model, taps: dict):
    """Records every block's output under block_NN."""
    def hook(index):
        def store(_module, _inputs, output):
            taps.setdefault(f"block_{index:02d}", output[0].float().numpy().copy())
        return store

    handles = [layer.register_forward_hook(hook(i)) for i, layer in enumerate(model.layers)]
    try:
        yield taps
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def denoise(model, text, negative, x, schedule, cfg, skip, dtype, taps=None):
    """Euler steps in fp32; the model sees the latents rounded to its dtype. Returns latents and the first velocities."""
    first = None
    for sigma, following in zip(schedule[:-1], schedule[1:]):
        timestep = torch.tensor(sigma) * 1000
        if taps is not None and first is None:
            with block_taps(model, taps):
                cond = model(x.to(dtype), timestep, text).float()
        else:
            cond = model(x.to(dtype), timestep, text).float()
        velocity = cond
        uncond = None
        if cfg != 1:
            uncond = model(x.to(dtype), timestep, negative, skip_layers=skip).float()
            velocity = uncond + cfg * (cond - uncond)
        if first is None:
            first = (cond, uncond)
        x = x + float(np.float32(following) - np.float32(sigma)) * velocity
    return x, first


@torch.no_grad()
def decode(model, latents) -> tuple[np.ndarray, np.ndarray]:
    """The picture as floats [H, W, 3] and as 8-bit levels."""
    std = torch.sqrt(model.bn.running_var.view(1, -1, 1, 1) + model.config.batch_norm_eps)
    z = latents * std + model.bn.running_mean.view(1, -1, 1, 1)
    b, c, h, w = z.shape
    z = z.reshape(b, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // 4, 2 * h, 2 * w)
    picture = model.decode(z, return_dict=False)[0][0].permute(1, 2, 0).clamp(-1, 1)
    levels = ((picture / 2 + 0.5).clamp(0, 1) * 255).round().to(torch.uint8)
    return picture.numpy(), levels.numpy()
