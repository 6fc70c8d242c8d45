"""Tiny models of random weights with golden vectors, for encoders that models/encoders' other ones leave out.

    python tools/golden/encoder_models.py models/encoders

Needs torch, transformers and safetensors. jina_bert is computed by the few lines below, after the description of the model
(ALiBi, a gated feed-forward layer, norms behind); the others by transformers. Tokenizers are those of models/encoders.
"""

import gzip
import json
import math
import os
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

LENGTHS = (3, 9, 24)


def ids_of(generator, length):
    return [2, *torch.randint(5, 512, (length - 2,), generator=generator).tolist(), 3]


def random_weights(model, generator):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 1 / math.sqrt(parameter.shape[-1]) if parameter.dim() > 1 else 0.1
            if "embed" in name.lower() and parameter.dim() > 1:
                spread = 1.0
            mean = 1.0 if parameter.dim() == 1 and "norm" in name.lower() and name.endswith("weight") and "gemma" not in model.config.model_type else 0.0
            parameter.copy_((torch.randn(parameter.shape, generator=generator) * spread + mean).to(torch.bfloat16))


def pooled(hidden, kind):
    vector = {"cls": hidden[0], "mean": hidden.mean(0), "last": hidden[-1]}[kind]
    return [float(f"{value:.7g}") for value in (vector / vector.norm()).tolist()]


def write(root, name, config, weights, hidden_of, pooling, tokenizer):
    folder = os.path.join(root, name)
    os.makedirs(os.path.join(folder, "1_Pooling"), exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    save_file({key: value.to(torch.bfloat16).contiguous() for key, value in weights.items()}, os.path.join(folder, "model.safetensors"))
    for one in ("tokenizer.json", "tokenizer_config.json", "modules.json"):
        shutil.copy(os.path.join(root, tokenizer, one), os.path.join(folder, one))
    modes = {"cls": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
    with open(os.path.join(folder, "1_Pooling", "config.json"), "w") as file:
        json.dump({f"pooling_mode_{key}": mode == pooling for mode, key in modes.items()}, file)
    generator = torch.Generator().manual_seed(7)
    prompts = [ids_of(generator, length) for length in LENGTHS]
    states = [hidden_of(ids) for ids in prompts]
    batch = {mode: [pooled(state, mode) for state in states[1:]] for mode in modes}
    rows = [{"ids": ids, "pooled": pooled(state, pooling)} for ids, state in zip(prompts, states)]
    golden = {
        "name": name,
        "reference": f"torch {torch.__version__}, transformers {transformers.__version__}, float32",
        "embedding": {"pooling": pooling, "rows": rows},
        "batch": {"input_ids": prompts[1:], "attention_mask": [[1] * len(ids) for ids in prompts[1:]], **batch},
        "tokenizer_samples": json.load(gzip.open(os.path.join(root, tokenizer, "golden.json.gz")))["tokenizer_samples"],
    }
    with open(os.path.join(folder, "golden.json.gz"), "wb") as file:
        file.write(gzip.compress(json.dumps(golden).encode(), mtime=0))


def by_transformers(root, name, model_class, config, pooling, tokenizer, rename=lambda key: key):
    generator = torch.Generator().manual_seed(len(name))
    model = model_class(config).eval()
    random_weights(model, generator)

    def hidden_of(ids):
        with torch.no_grad():
            return model(input_ids=torch.tensor([ids])).last_hidden_state[0]

    weights = {rename(key): value for key, value in model.state_dict().items() if "position_ids" not in key}
    write(root, name, config.to_dict(), weights, hidden_of, pooling, tokenizer)


def slopes(heads):
    """Press et al.: powers of 2^(-8 / n) for n heads, a power of two; what is missing are every second of twice as many."""
    if math.log2(heads).is_integer():
        return [2 ** (-8 * (i + 1) / heads) for i in range(heads)]
    less = 2 ** math.floor(math.log2(heads))
    return slopes(less) + slopes(2 * less)[0::2][: heads - less]


def jina_bert(root, name, heads, width, code=False, inner=80):
    layers = 2
    gated, down, last = ("up_gated_layer", "mlp.down_layer", "layer_norm_2") if code else ("gated_layers", "mlp.wo", "mlp.layernorm")
    generator = torch.Generator().manual_seed(11)
    weights = {}

    def draw(key, *shape):
        norm = any(part in key for part in ("LayerNorm", "layernorm", "layer_norm"))
        spread = 0.1 if len(shape) == 1 else 1.0 if "embeddings" in key else 1 / math.sqrt(shape[-1])
        value = torch.randn(shape, generator=generator) * spread + (1.0 if norm and key.endswith("weight") else 0.0)
        weights[key] = value.to(torch.bfloat16).float()

    def linear(key, out, into, bias=True):
        draw(f"{key}.weight", out, into)
        if bias:
            draw(f"{key}.bias", out)

    def norm(key):
        draw(f"{key}.weight", width)
        draw(f"{key}.bias", width)

    draw("embeddings.word_embeddings.weight", 512, width)
    draw("embeddings.token_type_embeddings.weight", 2, width)
    norm("embeddings.LayerNorm")
    for i in range(layers):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", width, width)
        linear(f"{layer}.attention.output.dense", width, width)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.mlp.{gated}", 2 * inner, width, bias=False)
        linear(f"{layer}.{down}", width, inner)
        norm(f"{layer}.{last}")
        if code:
            for part in ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1"):
                norm(f"{layer}.{part}")

    def product(x, key):
        return torch.nn.functional.linear(x, weights[f"{key}.weight"], weights.get(f"{key}.bias"))

    def normed(x, key):
        return torch.nn.functional.layer_norm(x, (width,), weights[f"{key}.weight"], weights[f"{key}.bias"], 1e-12)

    def hidden_of(ids):
        n, d = len(ids), width // heads
        x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.token_type_embeddings.weight"][0]
        x = normed(x, "embeddings.LayerNorm")
        distance = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).abs()
        bias = -torch.tensor(slopes(heads))[:, None, None] * distance
        for i in range(layers):
            layer = f"encoder.layer.{i}"
            q, k, v = (product(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
            if code:
                q, k = (normed(rows, f"{layer}.attention.self.layer_norm_{part}") for rows, part in ((q, "q"), (k, "k")))
            q, k, v = (rows.reshape(n, heads, d).transpose(0, 1) for rows in (q, k, v))
            mixed = ((q @ k.transpose(1, 2)) / math.sqrt(d) + bias).softmax(-1) @ v
            given = x
            x = normed(product(mixed.transpose(0, 1).reshape(n, width), f"{layer}.attention.output.dense") + x, f"{layer}.attention.output.LayerNorm")
            if code:
                # The layer's input once more.
                x = normed(given + x, f"{layer}.layer_norm_1")
            gate, up = product(x, f"{layer}.mlp.{gated}").split(inner, -1)
            if code:
                gate, up = up, gate
            x = normed(product(torch.nn.functional.gelu(gate) * up, f"{layer}.{down}") + x, f"{layer}.{last}")
        return x

    config = {
        "model_type": "bert", "architectures": ["JinaBertForMaskedLM"], "position_embedding_type": "alibi", "feed_forward_type": "geglu",
        "hidden_act": "gelu", "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner,
        "max_position_embeddings": 256, "type_vocab_size": 2, "vocab_size": 512, "layer_norm_eps": 1e-12, "pad_token_id": 0,
    }
    write(root, name, config, weights, hidden_of, "mean", "bert")


def main(root):
    jina_bert(root, "jina_bert", 6, 48)
    jina_bert(root, "jina_bert_code", 4, 32, code=True, inner=48)
    config = transformers.JinaEmbeddingsV3Config(
        vocab_size=512, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=258, attn_implementation="eager"
    )
    by_transformers(root, "jina_v3", lambda config: transformers.JinaEmbeddingsV3Model(config, add_pooling_layer=False), config, "mean", "xlm_roberta")
    config = transformers.Gemma3TextConfig(
        vocab_size=512, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=1, head_dim=16, intermediate_size=96,
        max_position_embeddings=256, sliding_window=10, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        use_bidirectional_attention=True, query_pre_attn_scalar=16, attn_implementation="eager", architectures=["Gemma3TextModel"],
    )
    by_transformers(root, "gemma_embedding", transformers.Gemma3TextModel, config, "mean", "qwen3_embedding")


if __name__ == "__main__":
    main(sys.argv[1])
