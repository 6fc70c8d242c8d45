"""What transformers computes for the models of models/tiny with other settings in config.json and the same weights.

  python tools/golden/variants.py      with torch 2.13 and transformers 5.18; writes packages/engine/test/fixtures/variants.json

Windows shorter and longer than the text, in every order of layers; each kind of scaled positions with factors that are not round;
experts that are few, in groups, or not in all layers; caps and scales. Each entry holds the changes, the ids, and some logits of the
last position in float32. The layers of `dense` have the weights of that name for a feed-forward layer.
"""
import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "packages/engine/test/fixtures/variants.json"
TOKENS, SHOWN = 37, 24

FULL, WINDOW = "full_attention", "sliding_attention"


def rope(kind, theta=10000.0, **more):
    return {"rope_scaling": None, "rope_theta": theta, "rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


def factors(count, step):
    return [round(1 + step * i, 3) for i in range(count)]


def experts(*layers):
    return {str(i): f"model.layers.{i}.mlp.experts.0." for i in layers}


VARIANTS = [
    ("llama", rope("linear", factor=1.7)),
    ("llama", rope("dynamic", factor=2.3)),
    ("llama", rope("llama3", factor=5.0, low_freq_factor=1.3, high_freq_factor=3.1, original_max_position_embeddings=48)),
    ("llama", rope("yarn", factor=3.3, original_max_position_embeddings=24, beta_fast=9.0, beta_slow=2.0)),
    ("llama", rope("yarn", factor=7.0, original_max_position_embeddings=32, attention_factor=0.81, truncate=False)),
    ("llama", rope("yarn", factor=40.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=0.9)),
    ("llama", rope("longrope", factor=4.0, original_max_position_embeddings=4, short_factor=factors(16, 0.03), long_factor=factors(16, 0.21))),
    ("llama", rope("longrope", original_max_position_embeddings=9, short_factor=factors(16, 0.03), long_factor=factors(16, 0.33))),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "layer_types": None}),
    ("qwen3", {"use_sliding_window": True, "sliding_window": 9, "layer_types": [WINDOW, FULL, WINDOW]}),
    ("qwen3", {"use_sliding_window": False, "sliding_window": 3, "layer_types": None}),
    ("qwen3_moe", {"norm_topk_prob": False, "num_experts_per_tok": 1}),
    ("mixtral", {"num_experts_per_tok": 1, "sliding_window": 4}),
    ("mixtral", {"num_experts_per_tok": 3}),
    ("mistral", {"sliding_window": 64}),
    ("mistral", {"sliding_window": None}),
    ("gemma2", {"layer_types": "reversed", "sliding_window": 3, "query_pre_attn_scalar": 17}),
    ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": 5.5}),
    ("gemma3_text", {"layer_types": "reversed", "sliding_window": 3}),
    ("cohere2", {"layer_types": "reversed", "sliding_window": 2, "logit_scale": 0.7}),
    ("olmo3", {"layer_types": "reversed", "sliding_window": 100}),
    ("exaone4", {"layer_types": "reversed", "sliding_window": 6}),
    ("gpt_oss", {"layer_types": "reversed", "sliding_window": 1}),
    ("smollm3", {"no_rope_layers": "reversed"}),
    ("glm4", {"partial_rotary_factor": 0.25}),
    ("glm4_moe", {"routed_scaling_factor": 0.3, "norm_topk_prob": False, "num_experts_per_tok": 1}),
    ("deepseek_v3", {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.7}),
    ("granite", {"attention_multiplier": 0.31, "residual_multiplier": 1.0, "embedding_multiplier": 1.0, "logits_scaling": 0.5}),
    ("olmoe", {"norm_topk_prob": True, "num_experts_per_tok": 1}),
    ("phi3_window", {"sliding_window": 2}),
    ("olmoe", {"clip_qkv": 0.4}),
    ("glm4_moe", {"n_group": 4, "topk_group": 2}),
    ("qwen3_moe", {"mlp_only_layers": [1]}, experts(1)),
    ("qwen3_moe", {"decoder_sparse_step": 2}, experts(0)),
    ("qwen3_next", {"mlp_only_layers": [0, 3]}, experts(0, 3)),
    ("deepseek_v2", {"moe_layer_freq": 2}, {"1": "model.layers.0.mlp."}),
    ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 28}),
    ("smollm3", {"use_sliding_window": True, "sliding_window": 3, "layer_types": None}),
    ("smollm3", {"use_sliding_window": True, "sliding_window": 6, "layer_types": [WINDOW, FULL, FULL, WINDOW]}),
    ("gpt2", {"activation_function": "relu", "scale_attn_by_inverse_layer_idx": True}),
    ("gpt2", {"activation_function": "gelu", "scale_attn_weights": False}),
    ("mamba2", {"n_groups": 2, "state_size": 16, "time_step_limit": [0.01, 0.9]}),
]


def changed(config, changes):
    changes = dict(changes)
    for key, value in list(changes.items()):
        if value == "reversed":
            changes[key] = config[key][::-1]
        if key == "partial_rotary_factor":
            changes.setdefault("rope_parameters", {**(config.get("rope_parameters") or {"rope_type": "default"}), key: value})
    if "partial_rotary_factor" in changes:
        changes["rope_parameters"].setdefault("rope_theta", config.get("rope_theta", 10000.0))
    return {**config, **changes}, changes


def norm_by_groups(norm, groups):
    """As the authors' kernels do; transformers, without them, norms all groups together."""

    def forward(x, gate):
        x = x * torch.nn.functional.silu(gate)
        parts = x.unflatten(-1, (groups, -1))
        parts = parts * torch.rsqrt(parts.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        return norm.weight * parts.flatten(-2)

    norm.forward = forward


def put_dense(layer, stored, at):
    """In the place of the layer's feed-forward layer or mixture."""
    parts = {name: stored[f"{at}{name}_proj.weight"].float() for name in ("gate", "up", "down")}
    linear = torch.nn.functional.linear

    class Dense(torch.nn.Module):
        def forward(self, x):
            return linear(torch.nn.functional.silu(linear(x, parts["gate"])) * linear(x, parts["up"]), parts["down"])

    layer.mlp = Dense()


def main():
    made = []
    ids = [(i * 37 + 11) % 200 for i in range(TOKENS)]
    for name, wanted, *rest in VARIANTS:
        folder = ROOT / "models/tiny" / name
        config, changes = changed(json.loads((folder / "config.json").read_text()), wanted)
        dense = rest[0] if rest else {}
        # As wide as an expert, but where there are such layers.
        if dense and "first_k_dense_replace" not in config:
            changes["intermediate_size"] = config["intermediate_size"] = config["moe_intermediate_size"]
        kind = config["model_type"]
        settings = AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k not in ("model_type", "transformers_version")})
        model = AutoModelForCausalLM.from_pretrained(folder, config=settings, dtype=torch.float32, attn_implementation="eager").eval()
        for layer in model.backbone.layers if kind == "mamba2" else []:
            norm_by_groups(layer.mixer.norm, settings.n_groups)
        for i, at in dense.items():
            put_dense(model.model.layers[int(i)], load_file(folder / "model.safetensors"), at)
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1].double()
        made.append({"model": name, "changes": changes, **({"dense": dense} if dense else {}), "std": float(f"{logits.std().item():.4g}"), "last": [float(f"{x:.6g}") for x in logits[:SHOWN].tolist()]})
        print(name, wanted, file=sys.stderr)
    OUT.write_text(json.dumps({"ids": ids, "variants": made}, separators=(",", ":")) + "\n")
    print(os.path.getsize(OUT), "bytes", len(made), "variants")


if __name__ == "__main__":
    main()
