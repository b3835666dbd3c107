"""The three networks of MOSS-Image in plain torch, for training: any batch, padded texts, official state-dict names.

Text encoder: Qwen3.5's text stack. DiT: MOSSImageDiT. VAE: the FLUX.2 decoder (its encoder here is a small one of our own that
only training needs). The weights load into the public classes (`golden/moss_torch.py`).
"""

import torch
import torch.nn.functional as F
from torch import nn

TEXT = {
    "vocab_size": 528, "hidden_size": 128, "intermediate_size": 256, "head_dim": 256, "num_attention_heads": 2,
    "num_key_value_heads": 1, "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}
DIT = {
    "dim": 256, "ffn_dim": 384, "num_heads": 2, "num_layers": 7, "text_dim": 128, "freq_dim": 256, "latent_channels": 128,
    "rope_base": 10000.0,
}
SKIP = (3,)
VAE_WIDTHS = (32, 32, 32, 64)
# With as many groups as channels a norm would lose a flat picture's colour.
VAE_GROUPS = 8
BATCH_NORM_EPS = 1e-4


class RMSNorm(nn.Module):
    def __init__(self, dim, zero_based=False):
        super().__init__()
        self.base = 1.0 if zero_based else 0.0
        self.weight = nn.Parameter(torch.zeros(dim) if zero_based else torch.ones(dim))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (self.base + self.weight.float())).to(x.dtype)


def half_turn(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * torch.cat((cos, cos), -1) + torch.cat((-b, a), -1) * torch.cat((sin, sin), -1)


class Mlp(nn.Module):
    def __init__(self, dim, ffn):
        super().__init__()
        self.gate_proj = nn.Linear(dim, ffn, bias=False)
        self.up_proj = nn.Linear(dim, ffn, bias=False)
        self.down_proj = nn.Linear(ffn, dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class FullAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        dim = c["hidden_size"]
        self.q_proj = nn.Linear(dim, 2 * self.heads * self.width, bias=False)
        self.k_proj = nn.Linear(dim, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(dim, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, dim, bias=False)
        self.q_norm, self.k_norm = RMSNorm(self.width, True), RMSNorm(self.width, True)

    def forward(self, x, rotary):
        b, n, _ = x.shape
        q, gate = self.q_proj(x).view(b, n, self.heads, 2 * self.width).chunk(2, -1)
        k, v = (p(x).view(b, n, self.kv_heads, self.width) for p in (self.k_proj, self.v_proj))
        q, k = self.q_norm(q), self.k_norm(k)
        cos, sin = rotary
        turned = 2 * cos.shape[-1]
        q, k = (torch.cat((half_turn(t[..., :turned], cos, sin), t[..., turned:]), -1).transpose(1, 2) for t in (q, k))
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.transpose(1, 2).repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True)
        y = y.transpose(1, 2) * gate.sigmoid()
        return self.o_proj(y.reshape(b, n, -1))


class GatedDeltaNet(nn.Module):
    """One chunk for the whole text: the recurrence as a triangular system (texts are short)."""

    def __init__(self, c):
        super().__init__()
        self.kh, self.vh, self.kd, self.vd = (
            c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_key_head_dim"], c["linear_value_head_dim"])
        dim, keys, values = c["hidden_size"], self.kh * self.kd, self.vh * self.vd
        channels = 2 * keys + values
        self.conv1d = nn.Conv1d(channels, channels, c["linear_conv_kernel_dim"], groups=channels, bias=False)
        self.dt_bias = nn.Parameter(torch.zeros(self.vh))
        self.A_log = nn.Parameter(torch.linspace(-2.0, 0.5, self.vh))
        self.norm = RMSNorm(self.vd)
        self.in_proj_qkv = nn.Linear(dim, channels, bias=False)
        self.in_proj_z = nn.Linear(dim, values, bias=False)
        self.in_proj_b = nn.Linear(dim, self.vh, bias=False)
        self.in_proj_a = nn.Linear(dim, self.vh, bias=False)
        self.out_proj = nn.Linear(values, dim, bias=False)

    def forward(self, x, rotary):
        b, n, _ = x.shape
        y = self.in_proj_qkv(x)
        taps = self.conv1d.weight[:, 0].to(y.dtype)
        width = taps.shape[1]
        padded = F.pad(y, (0, 0, width - 1, 0))
        y = F.silu(sum(padded[:, i:i + n] * taps[:, i] for i in range(width)))
        q, k, v = y.split((self.kh * self.kd, self.kh * self.kd, self.vh * self.vd), -1)
        group = self.vh // self.kh

        def heads(t, count, d):
            return t.reshape(b, n, count, d).transpose(1, 2).float()

        def unit(t):
            return t * torch.rsqrt(t.pow(2).sum(-1, keepdim=True) + 1e-6)

        with torch.autocast(x.device.type, enabled=False):
            q = unit(heads(q, self.kh, self.kd)).repeat_interleave(group, 1) * self.kd ** -0.5
            k = unit(heads(k, self.kh, self.kd)).repeat_interleave(group, 1)
            v = heads(v, self.vh, self.vd)
        beta = self.in_proj_b(x).sigmoid().transpose(1, 2).float()
        decay = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        with torch.autocast(x.device.type, enabled=False):
            total = decay.transpose(1, 2).cumsum(-1)
            lower = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
            between = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, float("-inf")).exp()
            system = ((k @ k.transpose(-1, -2)) * between * beta[..., None]).tril(-1)
            news = v * beta[..., None]
            # (1 + A)^-1 = (1 - A)(1 + A^2)(1 + A^4)..., and A^n is 0: products are faster than a triangular solve.
            news = news - system @ news
            for _ in range((n - 1).bit_length() - 1):
                system = system @ system
                news = news + system @ news
            y = ((q @ k.transpose(-1, -2)) * between) @ news
        y = y.transpose(1, 2).to(x.dtype)
        z = self.in_proj_z(x).view(b, n, self.vh, self.vd)
        y = (self.norm(y).float() * F.silu(z.float())).to(x.dtype)
        return self.out_proj(y.reshape(b, n, -1))


class TextLayer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], True)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], True)
        self.mlp = Mlp(c["hidden_size"], c["intermediate_size"])
        if kind == "full_attention":
            self.self_attn = FullAttention(c)
        else:
            self.linear_attn = GatedDeltaNet(c)

    def forward(self, x, rotary):
        mixer = self.self_attn if hasattr(self, "self_attn") else self.linear_attn
        x = x + mixer(self.input_layernorm(x), rotary)
        return x + self.mlp(self.post_attention_layernorm(x))


class TextEncoder(nn.Module):
    def __init__(self, c=TEXT):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(TextLayer(c, kind) for kind in c["layer_types"])
        self.norm = RMSNorm(c["hidden_size"], True)
        self.turned = c["head_dim"] // 4
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features ** -0.5 * 0.7)
        nn.init.normal_(self.embed_tokens.weight, std=1.0)

    def forward(self, ids):
        """Ids [B, L] (padding at the end changes nothing before it) to states [B, L, D]."""
        x = self.embed_tokens(ids)
        if torch.is_autocast_enabled(ids.device.type):
            x = x.to(torch.get_autocast_dtype(ids.device.type))
        band = 1.0 / (1e7 ** (torch.arange(0, self.turned, 2, device=ids.device).float() / self.turned))
        phase = torch.arange(ids.shape[1], device=ids.device).float()[:, None] * band
        rotary = tuple(f(phase)[None, :, None].to(x.dtype) for f in (torch.cos, torch.sin))
        for layer in self.layers:
            x = layer(x, rotary)
        return self.norm(x)


def shake(x, amount, roundings=1):
    """What `roundings` roundings of every element do, made larger: relative errors of up to `amount` [B], which may be None."""
    if amount is None:
        return x
    error = (torch.rand(x.shape, device=x.device) * 2 - 1) * (amount * roundings ** 0.5).view(-1, *[1] * (x.ndim - 1))
    return (x.float() * (1 + error)).to(x.dtype)


def situ(up, gate):
    return (4.0 * torch.tanh(gate / 4.0) * torch.sigmoid(gate)) * (25.0 * torch.tanh(up / 25.0))


class DitAttention(nn.Module):
    def attend(self, q, k, v, rope, mask, amount):
        b, n, dim = v.shape
        cos, sin = rope
        q, k, v = (t.view(b, n, self.heads, -1) for t in (q, k, v))
        q, k = (half_turn(shake(t, amount, 4), cos, sin) for t in (self.q_norm(q), self.k_norm(k)))
        y = F.scaled_dot_product_attention(
            q.to(v.dtype).transpose(1, 2), k.to(v.dtype).transpose(1, 2), v.transpose(1, 2), attn_mask=mask)
        return y.transpose(1, 2).reshape(b, n, dim)


class RefinerBlock(DitAttention):
    def __init__(self, dim, ffn, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.q_norm, self.k_norm = RMSNorm(dim // heads), RMSNorm(dim // heads)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn_gate, self.ffn_up, self.ffn_down = nn.Linear(dim, ffn), nn.Linear(dim, ffn), nn.Linear(ffn, dim)

    def forward(self, x, rope, mask, amount=None):
        y = shake(self.norm1(x), amount, 2)
        x = shake(x + self.proj(self.attend(*self.qkv(y).chunk(3, -1), rope, mask, amount)), amount)
        y = shake(self.norm2(x), amount, 2)
        return shake(x + self.ffn_down(shake(situ(self.ffn_up(y), self.ffn_gate(y)), amount, 3)), amount)


class Block(DitAttention):
    def __init__(self, dim, ffn, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.q_norm, self.k_norm = RMSNorm(dim // heads), RMSNorm(dim // heads)
        self.proj = nn.ModuleDict({name: nn.Linear(dim, dim, bias=False) for name in ("q", "k", "v", "o")})
        self.proj["ffn_up_gate"] = nn.Linear(dim, 2 * ffn, bias=False)
        self.proj["ffn_down"] = nn.Linear(ffn, dim, bias=False)

    def forward(self, x, rope, modulation, mask, amount=None):
        shift_a, scale_a, gate_a, shift_f, scale_f, gate_f = modulation.unbind(1)
        y = shake(self.norm1(x) * (1 + scale_a[:, None]) + shift_a[:, None], amount, 4)
        q, k, v = (self.proj[name](y) for name in ("q", "k", "v"))
        x = shake(x + self.proj["o"](self.attend(q, k, v, rope, mask, amount)) * gate_a[:, None], amount)
        y = shake(self.norm2(x) * (1 + scale_f[:, None]) + shift_f[:, None], amount, 4)
        up, gate = self.proj["ffn_up_gate"](y).chunk(2, -1)
        return shake(x + self.proj["ffn_down"](shake(situ(up, gate), amount, 3)) * gate_f[:, None], amount)


class TextProjection(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.proj = nn.Linear(c["text_dim"], c["dim"])
        self.blocks = nn.ModuleList(RefinerBlock(c["dim"], c["ffn_dim"], c["num_heads"]) for _ in range(2))


class Dit(nn.Module):
    def __init__(self, c=DIT):
        super().__init__()
        dim = c["dim"]
        self.c = c
        self.video_embedder = nn.Linear(c["latent_channels"], dim)
        self.text_embedder = TextProjection(c)
        self.time_embedding = nn.Sequential(nn.Linear(c["freq_dim"], dim), nn.SiLU(), nn.Linear(dim, dim))
        self.shared_block_modulation = nn.Linear(dim, 6 * dim)
        self.layers = nn.ModuleList(Block(dim, c["ffn_dim"], c["num_heads"]) for _ in range(c["num_layers"]))
        # Stays at 1, which rounds nothing; head modulation and last linear can do all that it could.
        self.final_norm_video = RMSNorm(dim).requires_grad_(False)
        self.final_linear_video = nn.Linear(dim, c["latent_channels"], bias=False)
        self.video_head_modulation = nn.Linear(dim, 2 * dim)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                deep = name.endswith((".o", "ffn_down", "blocks.0.proj", "blocks.1.proj"))
                nn.init.normal_(module.weight, std=module.in_features ** -0.5 * (0.4 if deep else 0.8))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in (self.shared_block_modulation, self.video_head_modulation):
            nn.init.normal_(module.weight, std=0.005)
        with torch.no_grad():
            gates = self.shared_block_modulation.bias.view(6, dim)
            gates[2], gates[5] = 0.5, 0.5
            self.final_linear_video.weight.mul_(0.1)

    def rope(self, height, width, lengths, text):
        """(cos, sin), each [B, h * w + text, 1, 64], for texts of `lengths` tokens padded to `text`."""
        device = lengths.device
        bands = self.c["dim"] // self.c["num_heads"] // 8
        band = 1 / (self.c["rope_base"] ** (torch.arange(bands, device=device).float() / bands))
        y = torch.arange(height, device=device).float() - (height - 1) / 2
        x = torch.arange(width, device=device).float() - (width - 1) / 2
        b, n = lengths.shape[0], height * width
        image = torch.stack((
            torch.zeros(b, n, device=device), lengths.float()[:, None].expand(b, n),
            y[:, None].expand(height, width).reshape(1, n).expand(b, n),
            x[None].expand(height, width).reshape(1, n).expand(b, n)), -1)
        words = torch.zeros(b, text, 4, device=device)
        words[..., 1] = torch.arange(text, device=device).float()
        phase = (torch.cat((image, words), 1)[..., None] * band).flatten(-2)[:, :, None]
        return phase.cos(), phase.sin()

    def forward(self, latents, timestep, states, lengths, skipped=None, amount=None):
        """Latents [B, 128, h, w], timestep [B], text states [B, L, D] of `lengths` tokens to velocity [B, 128, h, w].

        `skipped` maps a block to the samples [B] (bool) that leave it out; `amount` [B] shakes what lies on the tokens' way.
        """
        b, _, height, width = latents.shape
        n, text = height * width, states.shape[1]
        dtype = states.dtype
        half = self.c["freq_dim"] // 2
        freq = 10000 ** (-torch.arange(half, device=latents.device, dtype=torch.float64) / half)
        phase = timestep.double()[:, None] * freq
        time = self.time_embedding(torch.cat((phase.cos(), phase.sin()), -1).to(dtype))
        modulation = self.shared_block_modulation(time).view(b, 6, -1)
        head = self.video_head_modulation(time).view(b, 2, -1)
        cos, sin = (t.to(dtype) for t in self.rope(height, width, lengths, text))
        real = torch.arange(text, device=latents.device)[None] < lengths[:, None]
        words = self.text_embedder.proj(shake(states, amount, 4))
        mask = real[:, None, None]
        for block in self.text_embedder.blocks:
            words = block(words, (cos[:, n:], sin[:, n:]), mask, amount)
        x = shake(self.video_embedder(latents.to(dtype).flatten(2).transpose(1, 2)), amount)
        x = torch.cat((x, words), 1)
        mask = torch.cat((torch.ones(b, n, dtype=torch.bool, device=latents.device), real), 1)[:, None, None]
        for i, layer in enumerate(self.layers):
            y = layer(x, (cos, sin), modulation, mask, amount)
            x = torch.where(skipped[i][:, None, None], x, y) if skipped and i in skipped else y
        x = self.final_norm_video(x[:, :n])
        x = shake(x * (1 + head[:, 1, None]) + head[:, 0, None], amount, 3)
        return self.final_linear_video(x).transpose(1, 2).reshape(b, -1, height, width)


def group_norm(width):
    return nn.GroupNorm(VAE_GROUPS, width, eps=1e-6)


class Resnet(nn.Module):
    def __init__(self, width_in, width):
        super().__init__()
        self.norm1, self.conv1 = group_norm(width_in), nn.Conv2d(width_in, width, 3, padding=1)
        self.norm2, self.conv2 = group_norm(width), nn.Conv2d(width, width, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(width_in, width, 1) if width_in != width else None

    def forward(self, x):
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.conv2(F.silu(self.norm2(y)))
        return y + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class PixelAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.group_norm = group_norm(width)
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x):
        b, c, h, w = x.shape
        y = self.group_norm(x).flatten(2).transpose(1, 2)
        y = F.scaled_dot_product_attention(*(p(y)[:, None] for p in (self.to_q, self.to_k, self.to_v)))[:, 0]
        return x + self.to_out[0](y).transpose(1, 2).reshape(b, c, h, w)


class Upsampler(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Stage(nn.Module):
    def __init__(self, width_in, width, up, attention=False, count=3):
        super().__init__()
        self.resnets = nn.ModuleList(Resnet(width_in if i == 0 else width, width) for i in range(count))
        if attention:
            self.attentions = nn.ModuleList([PixelAttention(width)])
        if up:
            self.upsamplers = nn.ModuleList([Upsampler(width)])

    def forward(self, x):
        x = self.resnets[0](x)
        if hasattr(self, "attentions"):
            x = self.attentions[0](x)
        for resnet in self.resnets[1:]:
            x = resnet(x)
        return self.upsamplers[0](x) if hasattr(self, "upsamplers") else x


class Decoder(nn.Module):
    def __init__(self, widths=VAE_WIDTHS):
        super().__init__()
        wide = widths[-1]
        self.conv_in = nn.Conv2d(32, wide, 3, padding=1)
        self.mid_block = Stage(wide, wide, False, attention=True, count=2)
        self.up_blocks = nn.ModuleList()
        for i, width in enumerate(reversed(widths)):
            self.up_blocks.append(Stage(wide, width, i + 1 < len(widths)))
            wide = width
        self.conv_norm_out = group_norm(wide)
        self.conv_out = nn.Conv2d(wide, 3, 3, padding=1)

    def forward(self, x):
        x = self.mid_block(self.conv_in(x))
        for stage in self.up_blocks:
            x = stage(x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


def pack(z):
    """[B, 32, 2h, 2w] to [B, 128, h, w]: pixel (2y + i, 2x + j) of channel c to channel 4c + 2i + j."""
    return F.pixel_unshuffle(z, 2)


def unpack(z):
    return F.pixel_shuffle(z, 2)


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(128))
        self.register_buffer("running_var", torch.ones(128))


class Vae(nn.Module):
    """The decoder and what belongs to it in the checkpoint."""

    def __init__(self):
        super().__init__()
        self.bn = Statistics()
        self.post_quant_conv = nn.Conv2d(32, 32, 1)
        self.decoder = Decoder()

    def scale(self):
        std = torch.sqrt(self.bn.running_var + BATCH_NORM_EPS).view(1, -1, 1, 1)
        return std, self.bn.running_mean.view(1, -1, 1, 1)

    def forward(self, latents):
        """Normalised latents [B, 128, h, w] to a picture [B, 3, 16h, 16w], about -1 to 1."""
        std, mean = self.scale()
        return self.decoder(self.post_quant_conv(unpack(latents * std + mean)))


class Encoder(nn.Module):
    """Pictures [B, 3, 16h, 16w] to packed latents [B, 128, h, w], not yet normalised."""

    def __init__(self, width=192, depth=3):
        super().__init__()
        self.conv_in = nn.Conv2d(192, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
                          nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(depth))
        self.conv_out = nn.Conv2d(width, 32, 1)

    def forward(self, picture):
        x = self.conv_in(F.pixel_unshuffle(picture, 8))
        for block in self.blocks:
            x = x + block(x)
        return pack(self.conv_out(x))
