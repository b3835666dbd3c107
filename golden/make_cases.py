#!/usr/bin/env python3
"""Makes the golden cases: what the official pipeline, run from public packages, gives for small requests.

    python3 -m venv venv && venv/bin/pip install -r golden/requirements.txt
    cargo build --release -p moss-golden
    venv/bin/python golden/make_cases.py            # all committed cases, into golden/cases
    venv/bin/python golden/make_cases.py NAME ...   # some of them

A case is a folder with case.json (request, checkpoint, provenance) and tensors.npz. `ids`, `ids_negative`, `sigmas`, `noise`;
then for bf16 and fp32 runs over the same weights: `text_*`, `text_negative_*` [L, d], `velocity_cond_*`, `velocity_uncond_*`
(of the first step) and `latent_*` [1, 128, h, w], `picture_*` float and `image_*` 8-bit [H, W, 3], `block_NN_*` where asked for.
The arrays do not depend on the number of threads beyond what torch itself does; the committed ones were made with two.
"""

import argparse
import hashlib
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers.models.qwen3_5.modeling_qwen3_5 as qwen

import moss_torch as moss

ROOT = Path(__file__).resolve().parent
LINEAR = torch.nn.functional.linear
ATTENTION = torch.nn.functional.scaled_dot_product_attention
FORMAT = 1
PACKAGES = ("torch", "transformers", "diffusers", "diffsynth", "tokenizers", "safetensors", "numpy")
DEFAULT = {
    "negative": "",
    "width": 64,
    "height": 48,
    "steps": 4,
    "cfg": 3.0,
    "shift": 5.0,
    "seed": 42,
    "skip_layers": [1],
    "max_seq": 4096,
}


def case(checkpoint, prompt, taps=False, swaps=False, **changes):
    """`swaps`: measure torch's own kernel-swap noise through the whole run, for a run whose roundings no other order shares."""
    return {"checkpoint": checkpoint, "taps": taps, "swaps": swaps, "request": {"prompt": prompt, **DEFAULT, **changes}}


TINY = {"config": "tiny", "seed": 1}
BLOCK = {"config": "block", "seed": 1}
DEMO = {"config": "demo"}
# Text of a known length: the chat frame is 13 tokens of the synthetic tokenizer, each "x" one more.
CASES = {
    "tiny-64x48": case(TINY, "a red apple on the table", taps=True, negative="blur"),
    "tiny-16x16-cfg1": case(TINY, "", width=16, height=16, steps=2, cfg=1.0),
    "tiny-1to4-noskip": case(TINY, "苹果 और कुत्ता", width=32, height=128, steps=3, skip_layers=[], seed=2**32 + 7),
    "tiny-one-token": case(TINY, "never read", width=48, height=16, steps=2, max_seq=1, seed=0),
    "tiny-63-tokens": case(TINY, "x" * 50, steps=2, max_seq=63, seed=3),
    "tiny-64-tokens": case(TINY, "x" * 51, steps=2, max_seq=64, seed=4),
    "tiny-65-tokens": case(TINY, "x" * 90, steps=2, max_seq=65, seed=5),
    "tiny-repeated-sigmas": case(TINY, "repeats", width=32, height=32, steps=40, shift=60.0, cfg=1.5),
    "block-128x128": case(BLOCK, "a red apple on the table", width=128, height=128, steps=1, skip_layers=[], taps=True),
}
DEMO_PROMPTS = {
    "demo-apple": "a red apple on a wooden table",
    "demo-relation": "a blue circle left of a yellow star",
    "demo-night": "a white moon above a green tree at night",
}


def checkpoint_folder(checkpoint: dict, work: Path, binary: Path) -> Path:
    """The folder of a checkpoint, made when it is not there."""
    if checkpoint["config"] == "demo":
        return ROOT / "demo" / "model"
    folder = work / f"{checkpoint['config']}-{checkpoint['seed']}"
    if not folder.exists():
        subprocess.run([binary, "synth", "--config", checkpoint["config"], "--seed", str(checkpoint["seed"]),
                        "--out", folder], check=True)
    return folder


def weights_sha256(binary: Path, folder: Path) -> str:
    return subprocess.run([binary, "hash", folder], check=True, capture_output=True, text=True).stdout.strip()


def weights_bytes(folder: Path) -> int:
    """Bytes of a checkpoint's weight files."""
    return sum(file.stat().st_size for file in folder.rglob("*.safetensors"))


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.float() - b.float()).norm() / b.float().norm()).item()


def kernel_swaps(folder: Path, ids: np.ndarray, states: torch.Tensor) -> dict:
    """How far torch's own bf16 states move when only its kernels change: the yardstick for the text encoder."""
    swaps = {}
    swaps["eager attention"] = distance(moss.encode(moss.text_encoder(folder, torch.bfloat16, "eager"), ids), states)
    model = moss.text_encoder(folder, torch.bfloat16)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    swaps["another thread count"] = distance(moss.encode(model, ids), states)
    torch.set_num_threads(threads)
    chunked = qwen.torch_chunk_gated_delta_rule

    def recurrent(*args, chunk_size=64, **kwargs):
        return qwen.torch_recurrent_gated_delta_rule(*args, **kwargs)

    qwen.torch_chunk_gated_delta_rule = recurrent
    swaps["recurrent delta rule"] = distance(moss.encode(model, ids), states)
    qwen.torch_chunk_gated_delta_rule = lambda *args, chunk_size=64, **kwargs: chunked(*args, chunk_size=16, **kwargs)
    swaps["chunks of 16"] = distance(moss.encode(model, ids), states)
    qwen.torch_chunk_gated_delta_rule = chunked
    return swaps


def f32_linear(x, weight, bias=None):
    """torch's linear with other sums: operands widened, one rounding at the end."""
    return LINEAR(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


def f32_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """torch's attention with other sums: operands widened, one rounding at the end."""
    return ATTENTION(q.float(), k.float(), v.float(), attn_mask, dropout_p, is_causal, scale=scale,
                     enable_gqa=enable_gqa).to(q.dtype)


def whole_run_swaps(folder: Path, spec: dict, ids: list, start, schedule, vae, arrays: dict) -> dict:
    """How far torch's own bf16 latents and picture move when only its kernels change: the most, from either run."""
    request, dtype, most = spec["request"], torch.bfloat16, {}
    for linear, attention in ((f32_linear, ATTENTION), (LINEAR, f32_attention), (f32_linear, f32_attention)):
        torch.nn.functional.linear, torch.nn.functional.scaled_dot_product_attention = linear, attention
        try:
            encoder = moss.text_encoder(folder, dtype)
            states = [moss.encode(encoder, i) for i in ids]
            latent, _ = moss.denoise(moss.dit(folder, dtype), states[0], states[-1], start, schedule, request["cfg"],
                                     request["skip_layers"], dtype)
        finally:
            torch.nn.functional.linear, torch.nn.functional.scaled_dot_product_attention = LINEAR, ATTENTION
        for array, found in (("latent", latent), ("picture", torch.from_numpy(moss.decode(vae, latent)[0]))):
            for run in moss.DTYPES:
                apart = distance(found, torch.from_numpy(arrays[f"{array}_{run}"]))
                most.setdefault(array, {})[run] = max(apart, most.get(array, {}).get(run, 0.0))
    return most


def make(name: str, spec: dict, work: Path, binary: Path, out: Path) -> None:
    request, folder = spec["request"], checkpoint_folder(spec["checkpoint"], work, binary)
    prompts = [request["prompt"]] + ([request["negative"]] if request["cfg"] != 1 else [])
    ids = [moss.tokenize(folder, prompt, request["max_seq"]) for prompt in prompts]
    schedule = moss.sigmas(request["steps"], request["shift"])
    start = moss.noise(request["seed"], request["height"], request["width"])
    arrays = {"ids": ids[0], "sigmas": schedule, "noise": start.numpy()}
    if len(ids) == 2:
        arrays["ids_negative"] = ids[1]
    vae = moss.vae(folder)
    swaps = {}
    for dtype_name, dtype in moss.DTYPES.items():
        encoder = moss.text_encoder(folder, dtype)
        states = [moss.encode(encoder, i) for i in ids]
        del encoder
        if dtype_name == "bf16":
            swaps = kernel_swaps(folder, ids[0], states[0])
        dit = moss.dit(folder, dtype)
        taps = {} if spec["taps"] else None
        latent, (cond, uncond) = moss.denoise(dit, states[0], states[-1], start, schedule, request["cfg"],
                                              request["skip_layers"], dtype, taps)
        del dit
        picture, levels = moss.decode(vae, latent)
        arrays[f"text_{dtype_name}"] = states[0][0].float().numpy()
        arrays[f"velocity_cond_{dtype_name}"] = cond.numpy()
        if len(ids) == 2:
            arrays[f"text_negative_{dtype_name}"] = states[1][0].float().numpy()
            arrays[f"velocity_uncond_{dtype_name}"] = uncond.numpy()
        arrays[f"latent_{dtype_name}"] = latent.numpy()
        arrays[f"picture_{dtype_name}"] = picture
        arrays[f"image_{dtype_name}"] = levels
        for tap, value in (taps or {}).items():
            arrays[f"{tap}_{dtype_name}"] = value
    description = {
        "format": FORMAT,
        "request": request,
        "checkpoint": {**spec["checkpoint"], "sha256": weights_sha256(binary, folder),
                       "bytes": weights_bytes(folder)},
        "text_kernel_swaps": swaps,
        "kernel_swaps": whole_run_swaps(folder, spec, ids, start, schedule, vae, arrays) if spec["swaps"] else {},
        "provenance": {
            "packages": {p: importlib.metadata.version(p) for p in PACKAGES},
            "python": sys.version.split()[0],
            "threads": torch.get_num_threads(),
            "command": f"python golden/make_cases.py {name}",
        },
    }
    with tempfile.TemporaryDirectory(dir=out) as begun:
        begun = Path(begun) / name
        begun.mkdir()
        np.savez_compressed(begun / "tensors.npz", **arrays)
        (begun / "case.json").write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n")
        target = out / name
        if target.exists():
            for file in target.iterdir():
                file.unlink()
            target.rmdir()
        begun.rename(target)
    digest = hashlib.sha256((out / name / "tensors.npz").read_bytes()).hexdigest()[:16]
    lengths = "+".join(str(len(i)) for i in ids)
    print(f"{name}: {lengths} tokens, {len(schedule) - 1} steps, latent bf16 to fp32 "
          f"{distance(torch.tensor(arrays['latent_bf16']), torch.tensor(arrays['latent_fp32'])):.5f}, npz {digest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="cases to make (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / "cases")
    parser.add_argument("--work", type=Path, default=ROOT.parent / "target" / "golden", help="synthetic checkpoints")
    parser.add_argument("--binary", type=Path, default=ROOT.parent / "target" / "release" / "moss-golden")
    args = parser.parse_args()
    cases = dict(CASES)
    if (ROOT / "demo" / "model").exists():
        size = {"width": 128, "height": 128, "steps": 20, "skip_layers": demo_skip_layers()}
        cases |= {name: case(DEMO, prompt, swaps=True, **size) for name, prompt in DEMO_PROMPTS.items()}
    unknown = set(args.names) - set(cases)
    if unknown:
        raise SystemExit(f"unknown cases {sorted(unknown)}; there are {sorted(cases)}")
    torch.set_num_threads(2)
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, spec in cases.items():
        if not args.names or name in args.names:
            make(name, spec, args.work, args.binary, args.out)


def demo_skip_layers() -> list:
    config = json.loads((ROOT / "demo" / "model" / "transformer" / "config.json").read_text())
    return config.get("uncond_skip_layers", [])


if __name__ == "__main__":
    main()
