"""
Makes models/tiny/deepseek_v2: a tiny DeepSeek V2 of random weights, and what transformers computes from it in float32, in
the form of the other folders of models/tiny. Queries are not compressed (as in V2 Lite), experts are chosen by groups (as in
V2), and yarn has two unequal mscales.

  python tools/golden/deepseek_v2.py [--out models/tiny/deepseek_v2]      with torch 2.13 and transformers 5.18
"""
import argparse, gzip, json, math, os, shutil
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

SEED = 7
LENGTHS = [1, 9, 24]
GREEDY = 16
MARGIN = 0.03
NOTES = [
    "multi-head latent attention without compressed queries (q_lora_rank null)",
    "rope pairs are interleaved",
    "router: softmax scores; groups ranked by their best expert; kept weights not normalised, times routed_scaling_factor",
    "yarn: cosines and sines times (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1), score scale times (0.1 mscale_all_dim ln(factor) + 1)^2",
    "first layer dense; two shared experts are one layer of twice the width",
]
CONFIG = dict(
    vocab_size=512, hidden_size=64, intermediate_size=80, moe_intermediate_size=24, num_hidden_layers=3,
    num_attention_heads=2, num_key_value_heads=2, n_shared_experts=2, n_routed_experts=8, routed_scaling_factor=1.5,
    kv_lora_rank=40, q_lora_rank=None, qk_rope_head_dim=8, qk_nope_head_dim=24, v_head_dim=16, head_dim=8,
    topk_method="group_limited_greedy", n_group=4, topk_group=2, num_experts_per_tok=3, first_k_dense_replace=1,
    norm_topk_prob=False, hidden_act="silu", max_position_embeddings=256, rms_norm_eps=1e-6, bos_token_id=1,
    eos_token_id=2, pad_token_id=3, tie_word_embeddings=False, attention_bias=False,
    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64,
                         beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=0.707),
)


def rounded(values):
    return [float(f"{v:.6g}") for v in values]


def fill(model, generator):
    for name, tensor in model.named_parameters():
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm" in name:
            tensor.data = 1 + 0.2 * noise
        elif "embed_tokens" in name:
            tensor.data = noise
        else:
            tensor.data = noise * (1.3 / math.sqrt(tensor.shape[-1]))


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()


def greedy(model, ids):
    written, margins = [], []
    for _ in range(GREEDY):
        last = logits_of(model, ids + written)[-1]
        best, second = torch.topk(last, 2)[0].tolist()
        margins.append(best - second)
        written.append(int(last.argmax()))
    with torch.no_grad():
        cached = model.generate(torch.tensor([ids]), max_new_tokens=GREEDY, min_new_tokens=GREEDY, do_sample=False,
                                eos_token_id=None)[0, len(ids):].tolist()
    return written, margins, cached == written


def prompt(model, length, generator):
    """The first random one whose greedy choices all have the margin; of one token, any."""
    while True:
        ids = torch.randint(20, CONFIG["vocab_size"], (length,), generator=generator).tolist()
        logits = logits_of(model, ids)
        made = {"ids": ids, "last": rounded(logits[-1].tolist())}
        if length == 1:
            return made
        written, margins, same = greedy(model, ids)
        if min(margins) < MARGIN:
            continue
        if length == LENGTHS[-1]:
            positions = list(range(3, length, 4))
            made["every4"] = {"positions": positions, "logits": [rounded(logits[p].tolist()) for p in positions]}
        made["greedy"] = {"ids": written, "margin": rounded(margins), "same_with_cache": same}
        return made


def main():
    parser = argparse.ArgumentParser()
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--out", default=os.path.join(here, "../../models/tiny/deepseek_v2"))
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    generator = torch.Generator().manual_seed(SEED)
    config = DeepseekV2Config(**CONFIG)
    config._attn_implementation = "eager"
    model = DeepseekV2ForCausalLM(config).eval()
    fill(model, generator)
    std = logits_of(model, list(range(20, 60))).std().item()
    model.lm_head.weight.data *= 2 / std
    model.to(torch.bfloat16).save_pretrained(out)
    # One metadata entry less: the rest of a file is the same wherever it is made.
    path = os.path.join(out, "model.safetensors")
    save_file(load_file(path), path, metadata={"format": "pt"})
    if os.path.exists(os.path.join(out, "generation_config.json")):
        os.remove(os.path.join(out, "generation_config.json"))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(os.path.join(here, "../../models/tiny/deepseek_v3", name), os.path.join(out, name))
    model = DeepseekV2ForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    prompts = [prompt(model, length, generator) for length in LENGTHS]
    golden = {
        "format": 1, "name": "deepseek_v2", "class": "DeepseekV2ForCausalLM", "model_type": "deepseek_v2",
        "saved_dtype": "bf16",
        "reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager attention",
        "seed": SEED, "parameters": sum(p.numel() for p in model.parameters()), "notes": NOTES,
        "logits_std": rounded([torch.cat([logits_of(model, p["ids"]) for p in prompts]).std().item()])[0],
        "prompts": prompts,
    }
    with open(os.path.join(out, "golden.json.gz"), "wb") as file:
        file.write(gzip.compress(json.dumps(golden, separators=(",", ":")).encode(), mtime=0))
        file.write("\n")


main()
