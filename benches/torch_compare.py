#!/usr/bin/env python3
"""The pieces that `cargo bench -p moss-benches --bench cpu` times, in torch on the same machine, side by side.

    python3 benches/torch_compare.py [--ours FILE] [--threads N]

Needs torch, transformers and diffusers. FILE is the bench's output; without it the bench is run first. torch is timed in
fp32 and bf16; for bf16 also with oneDNN held to plain AVX-512, since a CPU with bf16 or AMX instructions sums in another
order than the definition allows. Weights are random; times are the best of several runs, by wall clock and by CPU time per
thread (the second is the fair one when the machine is not idle).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

VARIANTS = [
    ("torch fp32", "float32", {}),
    ("torch bf16", "bfloat16", {}),
    ("torch bf16, AVX-512 only", "bfloat16", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
]


def best(call, threads, runs=5):
    """Milliseconds: wall clock, and CPU time per thread."""
    call()
    wall = cpu = float("inf")
    for _ in range(runs):
        w, c = time.perf_counter(), time.process_time()
        call()
        wall = min(wall, time.perf_counter() - w)
        cpu = min(cpu, (time.process_time() - c) / threads)
    return [1e3 * wall, 1e3 * cpu]


def dit_block(torch, dtype, tokens=320, dim=3072, ffn=8192, heads=24):
    """One block with norms, rotary embedding and gates, without autograd."""
    F = torch.nn.functional
    h = dim // heads
    weight = lambda n, k: (torch.randn(n, k) / k**0.5).to(dtype)
    q, k, v, o = (weight(dim, dim) for _ in range(4))
    up_gate, down = weight(2 * ffn, dim), weight(dim, ffn)
    x = torch.randn(tokens, dim).to(dtype)
    one, head_one = torch.ones(dim, dtype=dtype), torch.ones(h, dtype=dtype)
    scale, shift, gate = (torch.randn(1, dim).to(dtype) for _ in range(3))
    cos, sin = torch.randn(tokens, 1, h).to(dtype), torch.randn(tokens, 1, h).to(dtype)

    def rotate(y):
        a, b = y.chunk(2, dim=-1)
        return y * cos + torch.cat((-b, a), dim=-1) * sin

    def call():
        y = F.rms_norm(x, (dim,), one, 1e-6) * (1 + scale) + shift
        split = lambda w: F.linear(y, w).view(tokens, heads, h)
        qh, kh = (rotate(F.rms_norm(split(w), (h,), head_one, 1e-6)) for w in (q, k))
        att = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (qh, kh, split(v))))
        z = x + F.linear(att[0].transpose(0, 1).reshape(tokens, dim), o) * gate
        y = F.rms_norm(z, (dim,), one, 1e-6) * (1 + scale) + shift
        u, g = F.linear(y, up_gate).chunk(2, dim=-1)
        situ = (4 * torch.tanh(g / 4) * torch.sigmoid(g)) * (25 * torch.tanh(u / 25))
        return z + F.linear(situ, down) * gate

    return call


def text_layer(torch, dtype, kind, tokens=320):
    """One official-size layer of transformers' Qwen3.5 text model."""
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

    config = Qwen3_5TextConfig(
        vocab_size=1024, hidden_size=4096, intermediate_size=12288, num_hidden_layers=1, layer_types=[kind],
        num_attention_heads=16, num_key_value_heads=4, head_dim=256, linear_num_key_heads=16,
        linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128,
    )
    model = Qwen3_5TextModel(config).to(dtype).eval()
    ids = torch.arange(tokens)[None]
    return lambda: model(input_ids=ids, use_cache=False)


def attention(torch, dtype, tokens=1088, heads=24, h=128):
    q, k, v = (torch.randn(1, heads, tokens, h).to(dtype) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def vae_decode(torch, dtype, side=512):
    from diffusers import AutoencoderKLFlux2

    vae = AutoencoderKLFlux2(block_out_channels=(128, 256, 512, 512), decoder_block_out_channels=(96, 192, 384, 384))
    vae = vae.to(dtype).eval()
    z = torch.randn(1, 32, side // 8, side // 8).to(dtype)
    return lambda: vae.decode(z).sample


def child(dtype_name, threads):
    """Times every piece in this process and prints JSON."""
    import torch

    torch.set_num_threads(threads)
    dtype = getattr(torch, dtype_name)
    pieces = {
        "DiT block, 320 tokens": lambda: dit_block(torch, dtype),
        "text layer, delta rule, 320 tokens": lambda: text_layer(torch, dtype, "linear_attention"),
        "text layer, full attention, 320 tokens": lambda: text_layer(torch, dtype, "full_attention"),
        "attention, 1088 tokens": lambda: attention(torch, dtype),
        "VAE decode, 512x512": lambda: vae_decode(torch, dtype),
    }
    times = {}
    with torch.inference_mode():
        for name, make in pieces.items():
            times[name] = best(make(), threads, 3 if name.startswith("VAE") else 5)
    print(json.dumps(times))


def ours(text):
    """Milliseconds by wall clock and by CPU time per thread from the bench's lines."""
    times = {}
    pattern = r"moss \| (.+?) \| ([\d.]+) ms \| ([\d.]+) GFLOP/s \| .*? \| by CPU time ([\d.]+) GFLOP/s"
    for name, ms, rate, cpu_rate in re.findall(pattern, text):
        wall = float(ms)
        times[name] = [wall, wall * float(rate) / float(cpu_rate)]
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ours", help="output of the bench")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args.child, args.threads)
    if args.ours:
        with open(args.ours, encoding="utf-8") as file:
            text = file.read()
    else:
        bench = ["cargo", "bench", "-q", "-p", "moss-benches", "--bench", "cpu"]
        text = subprocess.run(bench, check=True, stdout=subprocess.PIPE, text=True).stdout
    times = ours(text)
    if not times:
        sys.exit("the bench printed no line that begins with 'moss |'")
    for title, dtype, extra in VARIANTS:
        command = [sys.executable, __file__, "--child", dtype, "--threads", str(args.threads)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **extra})
        theirs = json.loads(run.stdout.splitlines()[-1])
        print(f"{title}, {args.threads} threads: ms (by CPU time), ours, and how many times faster ours is")
        for name, (wall, cpu) in theirs.items():
            if name in times:
                w, c = times[name]
                print(f"  {name:40} {wall:9.1f} ({cpu:9.1f})  {w:9.1f} ({c:9.1f})  x{wall / w:.2f} (x{cpu / c:.2f})")


if __name__ == "__main__":
    main()
