#!/usr/bin/env python3
"""transformers beside `candle bench`: Llama shapes with random weights in bf16, prompts eager, decode with a static cache and a
compiled step, greedy. `python3 tools/bench/torch_llama.py 8b 1,8,64` on a machine with an NVIDIA GPU, PyTorch and transformers.
`--requests 256` measures continuous batching too (`generate_batch`, as it is set by default): so many requests of 512 tokens, all
there at once, with 128 tokens each to generate."""
import argparse
import statistics
import time

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, StaticCache

# hidden, intermediate, layers, heads, key and value heads, values of a head; as in genmodel.py.
SHAPES = {"8b": (4096, 14336, 32, 32, 8, 128), "1b": (2048, 8192, 16, 32, 8, 64)}
VOCABULARY = 128256
PROMPT, STEPS, REPEAT, ANSWER = 512, 64, 3, 128

parser = argparse.ArgumentParser()
parser.add_argument("shape", choices=SHAPES)
parser.add_argument("batches", type=lambda text: [int(part) for part in text.split(",")])
parser.add_argument("--requests", type=int, default=0)
ARGS = parser.parse_args()


def build(shape):
    hidden, intermediate, layers, heads, kv_heads, head = SHAPES[shape]
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head,
        vocab_size=VOCABULARY,
        max_position_embeddings=8192,
        tie_word_embeddings=shape == "1b",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def seconds(run):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def prompts(model, batch):
    ids = torch.randint(0, VOCABULARY, (batch, PROMPT), device="cuda")
    run = lambda: model(input_ids=ids, use_cache=True, logits_to_keep=1).logits.argmax(-1).cpu()
    run()
    return batch * PROMPT / statistics.median(seconds(run) for _ in range(REPEAT))


def decode(model, batch):
    torch._dynamo.reset()
    cache = StaticCache(config=model.config, max_batch_size=batch, max_cache_len=PROMPT + 256, device="cuda", dtype=torch.bfloat16)
    ids = torch.randint(0, VOCABULARY, (batch, PROMPT), device="cuda")
    at = torch.arange(PROMPT, device="cuda")
    token = model(input_ids=ids, past_key_values=cache, cache_position=at, use_cache=True, logits_to_keep=1).logits.argmax(-1)
    forward = lambda token, at: model(input_ids=token, past_key_values=cache, cache_position=at, position_ids=at.expand(batch, 1), use_cache=True)
    step = torch.compile(lambda token, at: forward(token, at).logits[:, -1:].argmax(-1), mode="reduce-overhead")
    at = torch.tensor([PROMPT], device="cuda")

    def run(steps):
        nonlocal token
        for _ in range(steps):
            token = step(token.clone(), at).clone()
            at.add_(1)
        token.cpu()

    run(8)
    rates = []
    for _ in range(REPEAT):
        at.fill_(PROMPT)
        rates.append(batch * STEPS / seconds(lambda: run(STEPS)))
    return statistics.median(rates)


def batching(model, requests):
    ids = torch.randint(0, VOCABULARY, (requests, PROMPT)).tolist()
    # No token ends an answer.
    settings = GenerationConfig(max_new_tokens=ANSWER, do_sample=False, eos_token_id=-1, pad_token_id=0)
    outputs = model.generate_batch(inputs=ids, generation_config=settings, record_timestamps=True).values()
    begin = min(output.created_time for output in outputs)
    end = max(output.timestamps[-1] for output in outputs)
    return sum(len(output.generated_tokens) for output in outputs) / (end - begin)


with torch.no_grad():
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name(0)}, tokens/s")
    model = build(ARGS.shape)
    for batch in ARGS.batches:
        print(f"{ARGS.shape}, {batch} sequences, prompts of {PROMPT}: {prompts(model, batch):.0f}", flush=True)
    for batch in ARGS.batches:
        print(f"{ARGS.shape}, {batch} sequences, decode: {decode(model, batch):.0f}", flush=True)
    if ARGS.requests:
        model.set_attn_implementation("paged|sdpa")
        print(f"{ARGS.shape}, generate_batch of {ARGS.requests} requests: {batching(model, ARGS.requests):.0f}", flush=True)
