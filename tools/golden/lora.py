"""
Writes packages/engine/test/fixtures/lora: LoRA adapters of random matrices for models/tiny/llama and models/tiny/qwen2, as PEFT
saves them, and in golden.json what transformers with PEFT computes with each in float32.

  python tools/golden/lora.py      with torch 2.13, transformers 5.18 and peft 0.21
"""
import json, math, os
import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "../../models/tiny")
OUT = os.path.join(HERE, "../../packages/engine/test/fixtures/lora")
GREEDY = 12
MARGIN = 0.05
# The longest has a whole block of the cache and more.
LENGTHS = [7, 40]
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ADAPTERS = {
    # Every linear layer, the head too, with ranks and alphas of their own.
    "llama-all": ("llama", dict(r=4, lora_alpha=6, target_modules=[*ATTENTION, "gate_proj", "up_proj", "down_proj", "lm_head"],
                                rank_pattern={"down_proj": 2, "^model.layers.0.self_attn.q_proj": 3},
                                alpha_pattern={r".*\.1\.mlp\.(gate|up)_proj": 3})),
    # Parts of what is one product: query and value, and one of gate and up.
    "llama-some": ("llama", dict(r=8, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "v_proj", "up_proj"])),
    "qwen2-all": ("qwen2", dict(r=3, lora_alpha=6, target_modules=[*ATTENTION, "gate_proj", "up_proj", "down_proj"])),
}


def rounded(values):
    return [float(f"{v:.6g}") for v in values]


def base_of(name):
    folder = os.path.join(MODELS, name)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def fill(model, generator):
    for name, tensor in model.named_parameters():
        if ".lora_A." in name:
            tensor.data = torch.randn(tensor.shape, generator=generator) / math.sqrt(tensor.shape[1])
        if ".lora_B." in name:
            tensor.data = 0.5 * torch.randn(tensor.shape, generator=generator)


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
    return written, min(margins)


def prompt(model, length, generator, vocab):
    """The first random one whose greedy choices all have the margin."""
    while True:
        ids = torch.randint(20, vocab, (length,), generator=generator).tolist()
        written, margin = greedy(model, ids)
        if margin >= MARGIN:
            last = logits_of(model, ids)[-1].tolist()
            return {"ids": ids, "last": rounded(last), "greedy": written}


def main():
    generator = torch.Generator().manual_seed(5)
    golden = {"reference": f"peft {peft.__version__}, transformers {transformers.__version__}, torch {torch.__version__}, float32"}
    for name, (base, options) in ADAPTERS.items():
        folder = os.path.join(OUT, name)
        model = get_peft_model(base_of(base), LoraConfig(task_type="CAUSAL_LM", **options))
        fill(model, generator)
        # By default PEFT saves the whole head, which an adapter of it does not change.
        model.to(torch.bfloat16).save_pretrained(folder, save_embedding_layers=False)
        os.remove(os.path.join(folder, "README.md"))
        # The same bytes wherever it is made.
        path = os.path.join(folder, "adapter_model.safetensors")
        save_file(load_file(path), path, metadata={"format": "pt"})
        os.chmod(path, 0o644)
        path = os.path.join(folder, "adapter_config.json")
        with open(path) as file:
            config = json.load(file)
        config["base_model_name_or_path"] = f"models/tiny/{base}"
        config["target_modules"].sort()
        with open(path, "w") as file:
            json.dump(config, file, indent=2)
            file.write("\n")
        model = PeftModel.from_pretrained(base_of(base), folder).float().eval()
        vocab = model.config.vocab_size
        prompts = [prompt(model, length, generator, vocab) for length in LENGTHS]
        plain = logits_of(base_of(base), prompts[0]["ids"])[-1]
        changed = (plain - torch.tensor(prompts[0]["last"], dtype=torch.float64)).std().item()
        golden[name] = {"model": base, "std": rounded([plain.std().item()])[0], "changed": rounded([changed])[0],
                        "prompts": prompts}
    with open(os.path.join(OUT, "golden.json"), "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


main()
