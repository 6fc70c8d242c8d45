"""What transformers' models of texts and images compute for texts, with the weights of models/tiny as their text part.

  python tools/golden/text_parts.py      with torch 2.13 and transformers 5.18; writes packages/engine/test/fixtures/text-parts.json

Each entry holds the configuration of the whole, what its checkpoint as transformers saves it has in front of the text part's names,
what it calls the head (null where the embeddings are it), and some logits of the last position in float32.
"""
import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForImageTextToText

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "packages/engine/test/fixtures/text-parts.json"
TOKENS, SHOWN = 29, 24

SIGLIP = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)
QWEN = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=64, patch_size=8)


def mrope(interleaved, *sections):
    rope = {"rope_type": "default", "rope_theta": 700000.0, "mrope_section": list(sections)}
    return {"rope_parameters": {**rope, "mrope_interleaved": True} if interleaved else rope}


# The whole, the model whose weights it takes, its vision model, and changes of the text part's settings.
CASES = [
    ("gemma3", "gemma3_text", {**SIGLIP, "model_type": "siglip_vision_model"}, {}),
    ("mistral3", "mistral", {"model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 8, "image_size": 16, "patch_size": 8}, {}),
    ("llava", "llama", {**SIGLIP, "model_type": "clip_vision_model"}, {}),
    ("llava_next", "granite", {**SIGLIP, "model_type": "siglip_vision_model"}, {}),
    ("llava_onevision", "qwen2", {**SIGLIP, "model_type": "siglip_vision_model"}, {}),
    ("aya_vision", "cohere2", {**SIGLIP, "model_type": "siglip_vision_model"}, {}),
    ("cohere2_vision", "cohere2", {**SIGLIP, "model_type": "siglip_vision_model"}, {}),
    ("smolvlm", "llama", SIGLIP, {}),
    ("idefics3", "llama", SIGLIP, {}),
    ("internvl", "qwen2", {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": [16, 16], "patch_size": [8, 8]}, {}),
    ("lfm2_vl", "lfm2", {"model_type": "siglip2_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_patches": 16, "patch_size": 8}, {}),
    ("qwen2_vl", "qwen2", {"depth": 1, "embed_dim": 16, "hidden_size": 64, "num_heads": 2, "patch_size": 8}, mrope(False, 4, 2, 2)),
    ("qwen2_5_vl", "qwen2", QWEN, mrope(False, 2, 3, 3)),
    ("qwen3_vl", "qwen3", {**QWEN, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}, mrope(True, 8, 4, 4)),
    ("qwen3_vl_moe", "qwen3_moe", {**QWEN, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}, mrope(True, 6, 5, 5)),
    ("qwen3_5", "qwen3_5_text", {**QWEN, "num_position_embeddings": 16}, {}),
]
TEXT_TYPES = {"qwen2_vl": "qwen2_vl_text", "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text"}


def text_settings(whole, base, changes):
    """As AutoConfig reads them, old names and new."""
    settings = AutoConfig.from_pretrained(ROOT / "models/tiny" / base).to_dict()
    for key in ("architectures", "transformers_version", "dtype"):
        settings.pop(key, None)
    return {**settings, "model_type": TEXT_TYPES.get(whole, settings["model_type"]), **changes}


def main():
    made = []
    ids = [(i * 41 + 16) % 200 for i in range(TOKENS)]
    for whole, base, vision, changes in CASES:
        torch.manual_seed(1)
        # Tokens of images are none of the texts'.
        tokens = {key: 300 + i for i, key in enumerate(("image_token_id", "image_token_index", "video_token_id", "vision_start_token_id", "vision_end_token_id"))}
        text = text_settings(whole, base, changes)
        config = AutoConfig.for_model(whole, text_config=text, vision_config=vision, tie_word_embeddings=text["tie_word_embeddings"], **tokens)
        model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()
        stored = load_file(ROOT / "models/tiny" / base / "model.safetensors")
        own = model.model.text_model if hasattr(model.model, "text_model") else model.model.language_model
        weights = {name.removeprefix("model."): value.float() for name, value in stored.items() if name.startswith("model.")}
        if "moe" in base:
            weights = stacked(weights, own)
        own.load_state_dict(weights)
        if "lm_head.weight" in stored:
            model.lm_head.weight.data = stored["lm_head.weight"].float()
        else:
            model.tie_weights()
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double()
        # The text models scale their logits; the classes of the whole have left that out since transformers 4.52.
        logits = logits * text.get("logit_scale", 1.0) / text.get("logits_scaling", 1.0)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            saved = json.loads((Path(folder) / "config.json").read_text())
            names = list(load_file(Path(folder) / "model.safetensors"))
        saved["text_config"].pop("_name_or_path", None)
        saved["vision_config"] = {"model_type": saved["vision_config"].get("model_type")}
        embedding = "embed_tokens.weight"
        part = next(name for name in names if name.endswith(embedding)).removesuffix(embedding)
        head = next((name for name in names if name.endswith("lm_head.weight")), None)
        others = [name for name in names if not name.startswith(part) and name != head][:3]
        made.append({"whole": whole, "base": base, "config": saved, "part": part, "head": head, "others": others,
                     "std": float(f"{logits.std().item():.4g}"), "last": [float(f"{x:.6g}") for x in logits[:SHOWN].tolist()]})
        print(whole, part, head, others)
    OUT.write_text(json.dumps({"ids": ids, "wholes": made}, separators=(",", ":")) + "\n")
    print(OUT.stat().st_size, "bytes")


def stacked(weights, own):
    """Experts of a layer in one tensor, gates above ups."""
    result = {name: value for name, value in weights.items() if ".experts." not in name}
    for name in own.state_dict():
        if ".experts." not in name:
            continue
        at, kind = name.split(".experts.")
        count = len({key for key in weights if key.startswith(f"{at}.experts.") and key.endswith("down_proj.weight")})
        parts = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else ["down_proj"]
        result[name] = torch.stack([torch.cat([weights[f"{at}.experts.{e}.{part}.weight"] for part in parts]) for e in range(count)])
    return result


if __name__ == "__main__":
    main()
