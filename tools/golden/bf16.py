"""What transformers' own results in bf16 are off by, as parts of the logits' deviation, for prompts of 64 tokens and more.

usage: python tools/golden/bf16.py models/tiny [NAME ...]

Two columns a length: with the inputs of linear layers rounded to bf16 and all else in f32, which is what units for products
of bf16 make at least, and with the whole model in bf16. Of the last position, against f32 with the same weights. Needs torch
and transformers; the tests have the second column of 80 tokens for models whose first one is near 3e-2 or above.
"""
import gzip
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

LENGTHS = (64, 80, 128)


def prompt(length):
    return torch.tensor([[(i * 37 + 11) % 200 for i in range(length)]])


def logits(model):
    with torch.no_grad():
        return [model(prompt(length), use_cache=False).logits[0, -1].float() for length in LENGTHS]


def rounded(module, inputs):
    return tuple(x.to(torch.bfloat16).float() if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs)


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def main(root, *names):
    chosen = names or sorted(path.parent.name for path in root.glob("*/golden.json.gz"))
    print("tokens", *(f"{length:>16}" for length in LENGTHS))
    for name in chosen:
        folder = root / name
        deviation = json.loads(gzip.decompress((folder / "golden.json.gz").read_bytes()))["logits_std"]
        model = load(folder, torch.float32)
        exact = logits(model)
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(rounded)
        inputs, whole = logits(model), logits(load(folder, torch.bfloat16))
        off = [[((x - y).abs().max() / deviation).item() for x, y in zip(made, exact)] for made in (inputs, whole)]
        print(f"{name:16}", *(f"{first:8.4f} {second:7.4f}" for first, second in zip(*off)))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), *sys.argv[2:])
