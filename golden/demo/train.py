#!/usr/bin/env python3
"""Trains the demo model on one GPU: first the VAE, then text encoder and DiT together.

    train.py --stage vae --steps 4000 --out RUN
    train.py --stage dit --steps 20000 --out RUN       (reads RUN/vae.pt, goes on from RUN/dit.pt if it is there)
    train.py --stage export --out RUN --model FOLDER   (the official folder layout)

Needs torch, numpy, tokenizers and safetensors. The tokenizer is `model/tokenizer` (make_tokenizer.py). Same seed, same
machine and same versions: the same data and order; GPU sums may still differ in their last bits.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from networks import BATCH_NORM_EPS, DIT, SKIP, TEXT, VAE_GROUPS, VAE_WIDTHS, Dit, Encoder, TextEncoder, Vae
from render import render
from scenes import draw_pair
from sample import PREFIX, SUFFIX, draw, dump_json, token_ids

HERE = Path(__file__).resolve().parent
LENGTH = 32
SIZES = ((128, 128), (96, 128), (128, 96), (64, 64))
SHARES = (0.73, 0.09, 0.09, 0.09)
SEED = 20
# Largest error, of a uniform one, with the rms error 0.15 % of a rounding to bf16.
ROUNDING = 0.0015 * 3 ** 0.5


def make_pool(job):
    """(scenes [n, 10], ids [n, LENGTH], lengths [n]) of training pairs from one seed."""
    from tokenizers import Tokenizer

    seed, count = job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_file(str(HERE / "model" / "tokenizer" / "tokenizer.json"))
    rng = random.Random(seed)
    scenes = np.zeros((count, 10), np.int16)
    ids, lengths = np.zeros((count, LENGTH), np.int16), np.zeros(count, np.int16)
    done = 0
    while done < count:
        pairs = [draw_pair(rng) for _ in range(min(4096, count - done))]
        texts = [PREFIX + caption + SUFFIX for _, caption in pairs]
        for (scene, _), entry in zip(pairs, tokenizer.encode_batch(texts, add_special_tokens=False)):
            row = entry.ids[:LENGTH]
            scenes[done], ids[done, :len(row)], lengths[done] = scene, row, len(row)
            done += 1
    return scenes, ids, lengths


def pools(total, seed, workers):
    per = -(-total // workers)
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        made = pool.map(make_pool, [(seed * 1000 + i, per) for i in range(workers)])
    return [torch.from_numpy(np.concatenate(column)).long()[:total] for column in zip(*made)]


def rate(step, done, peak, warm):
    """Warms up over `warm` steps and falls as a cosine over the share `done` of the run."""
    return peak * min(1.0, (step + 1) / warm) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


def log(out, name, row):
    with open(out / f"{name}.log", "a") as file:
        file.write(json.dumps(row) + "\n")
    print(name, row, flush=True)


def save(path, value):
    torch.save(value, f"{path}.tmp")
    os.replace(f"{path}.tmp", path)


class Average:
    """Exponential moving average of a module's parameters."""

    def __init__(self, modules, limit):
        self.source = [p for m in modules for p in m.parameters() if p.requires_grad]
        self.mean = [p.detach().clone() for p in self.source]
        self.limit = limit

    def update(self, step):
        keep = min(self.limit, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.source], 1 - keep)

    def swap(self):
        for p, m in zip(self.source, self.mean):
            p.data, m.data = m.data, p.data


class Muon:
    """Momentum whose step is made near orthogonal by five Newton-Schulz steps (Jordan 2024), of the size of an Adam step.

    For matrices; those of one shape go together.
    """

    def __init__(self, matrices, decay=0.01, momentum=0.95):
        self.decay, self.momentum = decay, momentum
        self.groups = {}
        for p in matrices:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.mean = {shape: torch.zeros((len(some), *shape), device=some[0].device) for shape, some in self.groups.items()}

    @torch.no_grad()
    def step(self, rate):
        for shape, some in self.groups.items():
            gradient, mean = torch.stack([p.grad for p in some]), self.mean[shape]
            mean.lerp_(gradient, 1 - self.momentum)
            x = gradient.lerp(mean, self.momentum).to(torch.bfloat16)
            x = x if shape[0] <= shape[1] else x.transpose(1, 2)
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                square = x @ x.transpose(1, 2)
                x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
            x = x if shape[0] <= shape[1] else x.transpose(1, 2)
            torch._foreach_mul_(some, 1 - rate * self.decay)
            torch._foreach_add_(some, list((x.float() * (-0.2 * rate * max(shape) ** 0.5)).unbind(0)))


def train_vae(args, device):
    scenes, _, _ = pools(args.pool // 4, 1, args.workers)
    scenes = scenes.to(device)
    generator = torch.Generator(device).manual_seed(SEED)
    torch.manual_seed(SEED)
    encoder, vae = Encoder().to(device), Vae().to(device)
    encoder, vae = (m.to(memory_format=torch.channels_last) for m in (encoder, vae))
    parameters = [*encoder.parameters(), *vae.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.99), weight_decay=1e-3, fused=device.type == "cuda")
    average = Average((encoder, vae), 0.998)

    def loss_of(picture, noise, amount):
        with torch.autocast(device.type, torch.bfloat16):
            z = encoder(picture)
        z = z.float()
        mean, var = z.mean((0, 2, 3)), z.var((0, 2, 3))
        std = (var + BATCH_NORM_EPS).sqrt().view(1, -1, 1, 1)
        # The decoder learns to bear latents that are a little wrong.
        noisy = z + amount * noise * std
        with torch.autocast(device.type, torch.bfloat16):
            out = vae.decoder(vae.post_quant_conv(F.pixel_shuffle(noisy, 2)))
        out = out.float()
        error = out - picture
        dx, dy = error[..., 1:] - error[..., :-1], error[..., 1:, :] - error[..., :-1, :]
        loss = error.abs().mean() + error.pow(2).mean() + 0.5 * (dx.abs().mean() + dy.abs().mean())
        # Means near 0 and variances near 1 keep the statistics harmless in bf16.
        return loss + 1e-3 * (mean.pow(2).mean() + (var.log()).pow(2).mean()), mean.detach(), var.detach()

    compiled = torch.compile(loss_of) if args.compile else loss_of
    ready, started, chunk = {}, time.time(), args.batch * 16
    for step in range(args.steps):
        # Steps or seconds, what runs out first.
        done = max(step / args.steps, (time.time() - started) / args.seconds)
        height, width = SIZES[0] if step % 8 else SIZES[1 + (step // 8) % 3]
        queue = ready.setdefault((height, width), [])
        if not queue:
            index = torch.randint(len(scenes), (chunk,), generator=generator, device=device)
            pictures = render(scenes[index], height, width, generator)
            queue.extend(pictures.to(memory_format=torch.channels_last).split(args.batch))
        picture = queue.pop()
        noise = torch.randn((len(picture), 128, height // 16, width // 16), generator=generator, device=device)
        amount = torch.rand((len(picture), 1, 1, 1), generator=generator, device=device) * 0.4
        loss, mean, var = compiled(picture, noise, amount)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step, done, 2e-3, 200)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update(step)
        if step % 50 == 0 or step + 1 == args.steps or done >= 1:
            log(args.out, "vae", {"step": step, "loss": round(loss.item(), 5), "norm": round(norm.item(), 3),
                                  "seconds": round(time.time() - started, 1)})
        if done >= 1:
            break
    average.swap()
    with torch.no_grad():
        index = torch.randint(len(scenes), (args.batch * 16,), generator=generator, device=device)
        pictures = render(scenes[index], 128, 128, generator)
        # The shipped weights are bf16 values.
        for p in vae.parameters():
            p.copy_(p.to(torch.bfloat16).float())
        z = torch.cat([encoder(part).float() for part in pictures.split(args.batch)])
        vae.bn.running_mean.copy_(z.mean((0, 2, 3)).to(torch.bfloat16).float())
        vae.bn.running_var.copy_(z.var((0, 2, 3)).to(torch.bfloat16).float())
        std, mean = vae.scale()
        x = ((z - mean) / std)[:64]
        out = vae(x)
        log(args.out, "vae", {"mse": round((out - pictures[:64]).pow(2).mean().item(), 6),
                              "psnr": round(-10 * math.log10((out - pictures[:64]).pow(2).mean().item() / 4), 2)})
        pair = torch.cat((pictures[:16], out[:16]), 0).clamp(-1, 1)
        save_grid(args.out / "vae.png", ((pair / 2 + 0.5) * 255).round().byte().permute(0, 2, 3, 1).cpu(), 8)
    save(args.out / "vae.pt", {"encoder": encoder.state_dict(), "vae": vae.state_dict()})


def save_grid(path, pictures, columns):
    from PIL import Image

    b, h, w, _ = pictures.shape
    rows = b // columns
    sheet = pictures[:rows * columns].reshape(rows, columns, h, w, 3).permute(0, 2, 1, 3, 4)
    Image.fromarray(sheet.reshape(rows * h, columns * w, 3).numpy()).save(path)


@torch.no_grad()
def encode_all(encoder, vae, scenes, sizes, generator):
    """Normalised latents bf16 of one drawing of each scene."""
    std, mean = vae.scale()
    out = None
    for start in range(0, len(scenes), 2048):
        picture = render(scenes[start:start + 2048], *sizes, generator).to(memory_format=torch.channels_last)
        with torch.autocast(scenes.device.type, torch.bfloat16):
            z = encoder(picture)
        z = ((z.float() - mean) / std).to(torch.bfloat16)
        if out is None:
            out = torch.empty((len(scenes), *z.shape[1:]), dtype=torch.bfloat16, device=scenes.device)
        out[start:start + len(z)] = z
    return out


def train_dit(args, device):
    started = time.time()
    total = args.pool
    scenes, ids, lengths = (t.to(device) for t in pools(total, 2, args.workers))
    print("pool", time.time() - started, flush=True)
    generator = torch.Generator(device).manual_seed(SEED + 1)
    torch.manual_seed(SEED + 1)
    encoder, vae = Encoder().to(device), Vae().to(device)
    kept = torch.load(args.out / "vae.pt", map_location=device)
    encoder.load_state_dict(kept["encoder"])
    vae.load_state_dict(kept["vae"])
    vae.requires_grad_(False)
    encoder = encoder.to(memory_format=torch.channels_last)
    shares = SHARES if args.sizes else (1, 0, 0, 0)
    bounds = [round(total * sum(shares[:i])) for i in range(5)]
    latents = [encode_all(encoder, vae, scenes[a:b], size, generator)
               for a, b, size in zip(bounds[:-1], bounds[1:], SIZES) if b > a]
    print("latents", time.time() - started, [tuple(z.shape) for z in latents], flush=True)

    text, dit = TextEncoder().to(device), Dit().to(device)
    first = 0
    if (args.out / "dit.pt").exists():
        kept = torch.load(args.out / "dit.pt", map_location=device)
        text.load_state_dict({k: v.float() for k, v in kept["text"].items()})
        dit.load_state_dict({k: v.float() for k, v in kept["dit"].items()})
        with torch.no_grad():
            # The last norm's weight moves to its neighbours.
            weight = dit.final_norm_video.weight
            dit.final_linear_video.weight.mul_(weight)
            for part in (dit.video_head_modulation.weight, dit.video_head_modulation.bias):
                part[:len(weight)].div_(weight if part.ndim == 1 else weight[:, None])
            weight.fill_(1.0)
        first = kept["step"]
        print("resumed at", first, flush=True)
        generator.manual_seed(SEED + 2 + first)
    inner = [p for part in (text.layers, dit.layers, dit.text_embedder.blocks) for p in part.parameters() if p.ndim == 2]
    taken = {id(p) for p in inner}
    rest = [p for m in (text, dit) for p in m.parameters() if p.requires_grad and id(p) not in taken]
    plain, wide = [p for p in rest if p.ndim < 2], [p for p in rest if p.ndim >= 2]
    optimizer = torch.optim.AdamW([{"params": wide, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.98), fused=device.type == "cuda")
    muon = Muon(inner)
    average = Average((text, dit), args.average)

    def loss_of(z, noise, sigma, words, count, skipped, amount):
        s = sigma[:, None, None, None]
        noisy = (1 - s) * z + s * noise
        with torch.autocast(device.type, torch.bfloat16):
            states = text(words)
            velocity = dit(noisy.to(torch.bfloat16), sigma * 1000, states, count, {SKIP[0]: skipped}, amount)
        each = (velocity.float() - (noise - z)).pow(2).mean((1, 2, 3))
        each.mean().backward()
        return each.detach()

    if args.compile:
        for part in (*text.layers, *dit.text_embedder.blocks, *dit.layers):
            part.compile(dynamic=False)
    trained = [*plain, *wide, *inner]
    for p in trained:
        p.grad = torch.zeros_like(p)
    gradients = [p.grad for p in trained]
    recorded = {}

    def gradient(*inputs):
        """Fills the gradients; the losses [B]. On a GPU each size of picture is recorded as a graph and played from then on."""
        if not args.record:
            torch._foreach_zero_(gradients)
            return loss_of(*inputs)
        shape = inputs[0].shape
        if shape not in recorded:
            own = [t.clone() for t in inputs]
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    loss_of(*own)
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                torch._foreach_zero_(gradients)
                each = loss_of(*own)
            recorded[shape] = graph, own, each
        graph, own, each = recorded[shape]
        torch._foreach_copy_(own, list(inputs))
        graph.replay()
        return each

    tokenizer = load_tokenizer()
    empty = torch.tensor(tokenizer.encode(PREFIX + SUFFIX, add_special_tokens=False).ids, device=device)
    blank = torch.zeros(LENGTH, dtype=torch.long, device=device)
    blank[:len(empty)] = empty
    order = random.Random(SEED + first)
    mark = time.time()
    # Losses since the last line of the log, of the samples without errors and of all.
    sums = [0.0, 0.0, 0]
    for step in range(first, args.steps):
        done = max(step / args.steps, (time.time() - started) / args.seconds)
        which = order.choices(range(4), shares)[0]
        z = latents[which]
        index = torch.randint(len(z), (args.batch,), generator=generator, device=device)
        z = z[index].float()
        words, count = ids[bounds[which] + index], lengths[bounds[which] + index]
        rand = lambda: torch.rand(args.batch, generator=generator, device=device)
        dropped = rand() < 0.15
        words = torch.where(dropped[:, None], blank, words)
        count = torch.where(dropped, len(empty), count)
        v = (torch.arange(args.batch, device=device) + rand()) / args.batch
        sigma = torch.where(rand() < 0.75, 5 * v / (1 + 4 * v), v)
        noise = torch.randn(z.shape, generator=generator, device=device)
        # Guidance leaves out a block of the empty prompt's row, which must stay a denoiser.
        skipped = rand() < torch.where(dropped, 0.5, 0.04)
        # Three samples in ten see no errors, the others many roundings' worth: that is what makes the network bear its own.
        amount = args.shake * ROUNDING * ((rand() - 0.3) / 0.7).clamp(min=0)
        each = gradient(z, noise, sigma, words, count, skipped, amount)
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
        now = rate(step - first, done, args.peak, 400)
        for group in optimizer.param_groups:
            group["lr"] = now
        optimizer.step()
        muon.step(now)
        calm = amount == 0
        sums = [sums[0] + (each * calm).sum() / calm.sum(), sums[1] + each.mean(), sums[2] + 1]
        average.update(step - first)
        if step % 100 == 0 or step + 1 == args.steps:
            calm, shaken, steps = (t.item() if torch.is_tensor(t) else t for t in sums)
            sums = [0.0, 0.0, 0]
            log(args.out, "dit", {"step": step, "loss": round(calm / steps, 5), "shaken": round(shaken / steps, 5),
                                  "norm": round(norm.item(), 3), "seconds": round(time.time() - mark, 1)})
        over = done >= 1
        if (step + 1) % args.every == 0 or step + 1 == args.steps or over:
            average.swap()
            keep_dit(args, text, dit, vae, tokenizer, step + 1)
            average.swap()
        if over:
            print("out of time at", step + 1, flush=True)
            break


def load_tokenizer():
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(HERE / "model" / "tokenizer" / "tokenizer.json"))


@torch.no_grad()
def rounding(kept, shadow, tokenizer):
    """Relative L2 distance of velocities in bf16 from those in fp32 of 32 prompts, by sigma."""
    encoder, dit, _ = shadow
    device = next(dit.parameters()).device
    exact = TextEncoder().to(device), Dit().to(device)
    for module, name in zip(exact, ("text", "dit")):
        module.load_state_dict({k: v.float() for k, v in kept[name].items()})
    rng = random.Random(9)
    ids, lengths = (t.to(device) for t in token_ids(tokenizer, [draw_pair(rng, True)[1] for _ in range(32)]))
    x = torch.randn((32, 128, 8, 8), generator=torch.Generator().manual_seed(42)).to(device)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    found = {}
    for sigma in (1.0, 0.9, 0.7, 0.4):
        t = torch.full((32,), sigma * 1000, device=device)
        a, b = (d(x, t, e(ids), lengths).float() for e, d in ((encoder, dit), exact))
        # The next sigma looks at a picture that is as far done as the model has it.
        x = x - (0.1 if sigma == 1 else 0.2 if sigma == 0.9 else 0.3) * b
        found[sigma] = round(((a - b).norm() / b.norm()).item(), 5)
    torch.set_float32_matmul_precision(before)
    return found


def keep_dit(args, text, dit, vae, tokenizer, step):
    """Writes the rounded average and a sheet of held-out prompts."""
    rounded = {"text": {k: v.to(torch.bfloat16) for k, v in text.state_dict().items()},
               "dit": {k: v.to(torch.bfloat16) for k, v in dit.state_dict().items()}, "step": step}
    save(args.out / "dit.pt", rounded)
    device = next(dit.parameters()).device
    shadow = TextEncoder().to(device, torch.bfloat16), Dit().to(device, torch.bfloat16), vae
    shadow[0].load_state_dict(rounded["text"])
    shadow[1].load_state_dict(rounded["dit"])
    log(args.out, "dit", {"step": step, "rounding": rounding(rounded, shadow, tokenizer)})
    rng = random.Random(9)
    prompts = ["a red apple on a wooden table"] + [draw_pair(rng, True)[1] for _ in range(args.sheet - 1)]
    pictures = torch.cat([draw(shadow, tokenizer, prompts[i:i + 100], range(i, i + len(prompts[i:i + 100])))
                          for i in range(0, len(prompts), 100)])
    save_grid(args.out / "sheet.png", pictures, 20 if args.sheet > 80 else 8)
    (args.out / "sheet.json").write_text(json.dumps(prompts, indent=0))


def export(args):
    from safetensors.torch import save_file

    folder = args.model
    kept = torch.load(args.out / "dit.pt", map_location="cpu")
    meta = {"format": "pt"}
    layers = len(TEXT["layer_types"])
    text = {**TEXT, "attention_bias": False, "attn_output_gate": True, "dtype": "bfloat16", "hidden_act": "silu",
            "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "num_hidden_layers": layers,
            "partial_rotary_factor": 0.25, "tie_word_embeddings": False,
            "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
                                "rope_theta": 10000000, "rope_type": "default"}}
    dump_json(folder / "text_encoder" / "config.json", {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text})
    dump_json(folder / "transformer" / "config.json", {
        "_class_name": "MOSSImageDiT", **DIT, "uncond_skip_layers": list(SKIP)})
    dump_json(folder / "vae" / "config.json", {
        "_class_name": "AutoencoderKLFlux2", "batch_norm_eps": BATCH_NORM_EPS, "block_out_channels": list(VAE_WIDTHS),
        "decoder_block_out_channels": list(VAE_WIDTHS), "latent_channels": 32, "layers_per_block": 2,
        "mid_block_add_attention": True, "norm_num_groups": VAE_GROUPS, "patch_size": [2, 2],
        "use_post_quant_conv": True, "use_quant_conv": True})
    dump_json(folder / "scheduler" / "scheduler_config.json", {
        "_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 5.0})
    dump_json(folder / "model_index.json", {
        "_class_name": "MOSSImagePipeline", "default_size": [128, 128], "default_steps": 20,
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen3_5ForConditionalGeneration"],
        "tokenizer": ["transformers", "Qwen2TokenizerFast"], "transformer": ["moss_image", "MOSSImageDiT"],
        "vae": ["diffusers", "AutoencoderKLFlux2"]})
    prefix = "model.language_model."
    save_file({prefix + k: v.contiguous() for k, v in kept["text"].items()},
              folder / "text_encoder" / "model.safetensors", meta)
    save_file({k: v.contiguous() for k, v in kept["dit"].items()},
              folder / "transformer" / "diffusion_pytorch_model.safetensors", meta)
    vae = torch.load(args.out / "vae.pt", map_location="cpu")["vae"]
    save_file({k: v.to(torch.bfloat16).contiguous() for k, v in vae.items()},
              folder / "vae" / "diffusion_pytorch_model.safetensors", meta)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print(f"{folder}: {size} bytes, DiT and text encoder of step {kept['step']}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", choices=("vae", "dit", "export"), required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--pool", type=int, default=1_300_000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--peak", type=float, default=1.5e-3)
    parser.add_argument("--average", type=float, default=0.9993)
    parser.add_argument("--every", type=int, default=3000)
    parser.add_argument("--sheet", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--shake", type=float, default=64, help="errors of activations, in roundings to bf16")
    parser.add_argument("--one-size", dest="sizes", action="store_false", help="pictures of 128x128 alone")
    parser.add_argument("--no-record", dest="record", action="store_false")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    args.record = args.record and device.type == "cuda"
    if args.stage == "vae":
        train_vae(args, device)
    elif args.stage == "dit":
        train_dit(args, device)
    else:
        export(args)


if __name__ == "__main__":
    main()
