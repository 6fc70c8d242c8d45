"""The programs of programs.ts in PyTorch eager, for torch_ops.py: the same shapes, layers and optimizers."""
import torch
import torch.nn.functional as F
from torch import nn


class CharBlock(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.norm, self.feed_norm = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(context), 10000 ** (-torch.arange(half) / half))[:, None]
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, -1))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, -1))

    def turned(self, xs):
        low, high = xs.chunk(2, -1)
        return xs * self.cos + torch.cat([-high, low], -1) * self.sin

    def forward(self, xs):
        normed = self.norm(xs)
        query, key, value = (layer(normed).unflatten(-1, (self.heads, -1)) for layer in (self.query, self.key, self.value))
        query, key = self.turned(query), self.turned(key)
        mixed = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (query, key, value)), is_causal=True)
        xs = xs + self.out(mixed.transpose(1, 2).flatten(2))
        return xs + self.down(F.gelu(self.up(self.feed_norm(xs)), approximate="tanh"))


def char_lm(device):
    width, context, alphabet = 128, 64, 80
    model = nn.Sequential(
        nn.Embedding(alphabet, width),
        *(CharBlock(width, 4, context) for _ in range(3)),
        nn.RMSNorm(width, 1e-5),
        nn.Linear(width, alphabet, bias=False),
    ).to(device)
    ids = classes(alphabet, 24 * context, device).view(24, context)
    return model, lambda: model(ids).flatten(0, 1), classes(alphabet, 24 * context, device)


def lstm(device):
    table, layer, head = nn.Embedding(80, 64), nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 80)
    model = nn.ModuleList([table, layer, head]).to(device)
    ids = classes(80, 1600, device).view(16, 100)
    return model, lambda: head(layer(table(ids))[0]).flatten(0, 1), classes(80, 1600, device)


def cnn(device):
    model = nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10)),
    ).to(device)
    images = torch.randn(32, 3, 32, 32, device=device)
    return model, lambda: model(images), classes(10, 32, device)


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, xs):
        parts = self.qkv(self.norm(xs)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        xs = xs + self.out(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))
        return xs + self.down(F.gelu(self.up(self.feed_norm(xs))))


def vit_block(device):
    model = VitBlock(384, 6).to(device)
    xs = torch.randn(4, 197, 384, device=device)
    return model, lambda: model(xs).flatten(0, 1), classes(384, 4 * 197, device)


def classes(count, size, device):
    return torch.arange(size, device=device) * 40503 % count


def program_ops(name, device):
    """A forward pass without gradients and a step of AdamW, by their names."""
    model, forward, targets = PROGRAMS[name](device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def pass_only():
        with torch.no_grad():
            return forward()

    def step():
        F.cross_entropy(forward(), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        optimizer.zero_grad()

    return {f"{name}_forward": pass_only, f"{name}_step": step}


PROGRAMS = {"char_lm": char_lm, "lstm": lstm, "cnn": cnn, "vit_block": vit_block}
