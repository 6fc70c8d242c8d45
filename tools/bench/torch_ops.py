#!/usr/bin/env python3
"""PyTorch eager, for tools/bench/ops.ts: reads {"op", "runs", "warmUp": {"runs", "ms"}}, a line each, and answers each
with {"op", "ms"}, the milliseconds of `runs` runs by device events after the warm-up, or {"op", "error"}."""
import json
import sys
import time

import torch
import torch.nn.functional as F

DEVICE = "cuda"
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
N = 1 << 28


def element_ops(dtype):
    a = torch.randn(N, device=DEVICE, dtype=dtype)
    b = torch.randn(N, device=DEVICE, dtype=dtype)
    out = torch.empty_like(a)
    rows_a, rows_b = a.view(-1, 4096), b.view(-1, 4096)
    row = b[:4096]
    weight = torch.randn(4096, device=DEVICE, dtype=dtype)
    mask = rows_a > 0
    index = torch.arange(rows_a.shape[0] // 2, device=DEVICE) * 40503 % rows_a.shape[0]
    sortable = a[: N // 4].view(-1, 1024)
    return {
        "copy": lambda: out.copy_(a),
        "exp": lambda: torch.exp(a),
        "gelu": lambda: F.gelu(a, approximate="tanh"),
        "silu": lambda: F.silu(a),
        "affine": lambda: a * 2 + 1,
        "add": lambda: a + b,
        "add_rowbcast": lambda: rows_a + row,
        "transpose_contig": lambda: rows_a.t().contiguous(),
        "sum_last": lambda: rows_a.sum(-1),
        "sum_first": lambda: rows_a.sum(0),
        "max_last": lambda: rows_a.amax(-1),
        "argmax_last": lambda: rows_a.argmax(-1),
        "softmax_last": lambda: F.softmax(rows_a, -1),
        "rmsnorm": lambda: F.rms_norm(rows_a, (4096,), weight, 1e-5),
        "layernorm": lambda: F.layer_norm(rows_a, (4096,), weight, weight),
        "where": lambda: torch.where(mask, rows_a, rows_b),
        "cmp_lt": lambda: rows_a < rows_b,
        "index_select": lambda: rows_a.index_select(0, index),
        "sort_1024": lambda: sortable.sort(-1),
    }


def vocabulary_ops(dtype):
    logits = torch.randn(16, 152064, device=DEVICE, dtype=dtype)
    return {
        "sort_152064": lambda: logits.sort(-1),
        "argsort_152064": lambda: logits.argsort(-1),
        "topk50_152064": lambda: logits.topk(50, -1),
    }


def cast_ops(_):
    a = torch.randn(N, device=DEVICE)
    return {"cast_f32_f16": lambda: a.half(), "cast_f32_bf16": lambda: a.bfloat16()}


def product_ops(dtype):
    made = {}
    for m in (4096, 8192):
        x = torch.randn(m, m, device=DEVICE, dtype=dtype)
        y = torch.randn(m, m, device=DEVICE, dtype=dtype)
        made[f"matmul_{m}"] = lambda x=x, y=y: x @ y
    vector = torch.randn(1, 4096, device=DEVICE, dtype=dtype)
    weights = torch.randn(14336, 4096, device=DEVICE, dtype=dtype)
    image = torch.randn(32, 128, 56, 56, device=DEVICE, dtype=dtype)
    kernel = torch.randn(256, 128, 3, 3, device=DEVICE, dtype=dtype)
    q = torch.randn(1, 32, 1024, 128, device=DEVICE, dtype=dtype)
    made["matvec_14336x4096"] = lambda: vector @ weights.t()
    made["conv2d"] = lambda: F.conv2d(image, kernel, padding=1)
    made["sdpa_causal_1k"] = lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return made


def launch_ops(_):
    x = torch.randn(1024, device=DEVICE)

    def chain():
        y = x
        for _ in range(1000):
            y = y + 1.0

    return {"launch_1000_small_adds": chain}


def times_of(run, runs, warm_up):
    begin, done = time.perf_counter(), 0
    while done < warm_up["runs"] or (time.perf_counter() - begin) * 1e3 < warm_up["ms"]:
        run()
        torch.cuda.synchronize()
        done += 1
    times = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times


def group_of(name):
    """The maker of the group that `name` is in, its dtype, and the key within the group."""
    if name.startswith("launch_"):
        return launch_ops, None, name
    if name.startswith("cast_"):
        return cast_ops, None, name
    base, dtype = name.rsplit("_", 1)
    if base.endswith("_152064"):
        return vocabulary_ops, DTYPES[dtype], base
    heavy = base.startswith(("matmul_", "matvec_", "sdpa_")) or base == "conv2d"
    return (product_ops if heavy else element_ops), DTYPES[dtype], base


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    opened, ops = None, {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["op"]
        try:
            make, dtype, key = group_of(name)
            if opened != (make, dtype):
                ops = {}
                torch.cuda.empty_cache()
                ops, opened = make(dtype), (make, dtype)
            answer = {"op": name, "ms": times_of(ops[key], asked["runs"], asked["warmUp"])}
        except Exception as error:
            answer = {"op": name, "error": str(error)}
        print(json.dumps(answer), flush=True)


main()
