"""What transformers computes for the encoders of models/encoders with other settings in config.json and the same weights.

  python tools/golden/encoder_variants.py      with torch 2.13 and transformers 5.18; writes packages/engine/test/fixtures/encoder-variants.json

Each entry holds the changes and some numbers of the last token's hidden state in float32. A setting that is null is left out.
"""
import json
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "packages/engine/test/fixtures/encoder-variants.json"
TOKENS, SHOWN = 37, 16

FULL, WINDOW = "full_attention", "sliding_attention"
YARN = {"rope_type": "yarn", "rope_theta": 3000.0, "factor": 3.3, "original_max_position_embeddings": 24}
LINEAR = {"rope_type": "linear", "rope_theta": 900.0, "factor": 1.7}

VARIANTS = [
    ("bert", {"hidden_act": "relu", "layer_norm_eps": 0.01}),
    ("nomic_bert", {"activation_function": None, "hidden_act": "gelu"}),
    ("nomic_bert", {"rotary_emb_base": None, "rope_theta": None, "rope_parameters": YARN}),
    ("modernbert", {"rope_parameters": {FULL: YARN, WINDOW: LINEAR}, "local_attention": 7}),
    ("modernbert", {"layer_types": [WINDOW, FULL, WINDOW, FULL], "local_attention": 5, "hidden_activation": "silu"}),
    ("jina_v3", {"rope_parameters": LINEAR, "hidden_act": "silu"}),
]


def main():
    made = []
    ids = [(i * 37 + 11) % 500 for i in range(TOKENS)]
    for name, changes in VARIANTS:
        folder = ROOT / "models/encoders" / name
        config = {**json.loads((folder / "config.json").read_text()), **changes}
        kind = config.pop("model_type")
        config.pop("transformers_version", None)
        settings = AutoConfig.for_model(kind, **{key: value for key, value in config.items() if value is not None})
        model = AutoModel.from_pretrained(folder, config=settings, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            last = model(torch.tensor([ids])).last_hidden_state[0, -1].double()
        made.append({"model": name, "changes": changes, "last": [float(f"{x:.6g}") for x in last[:SHOWN].tolist()]})
    OUT.write_text(json.dumps({"ids": ids, "variants": made}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
