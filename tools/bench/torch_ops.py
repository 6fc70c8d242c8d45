#!/usr/bin/env python3
"""PyTorch eager, for tools/bench/ops.ts, on the device and with the scale and threads of its arguments: reads {"op", "runs", "warmUp": {"runs", "ms"}}, a line each, and answers each
with {"op", "ms"}, the milliseconds of `runs` runs by device events after the warm-up, or {"op", "error"}."""
import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch_programs import PROGRAMS, program_ops

parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
parser.add_argument("--scale", type=float, default=1)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--processor-time", action="store_true")
ARGS = parser.parse_args()
DEVICE = ARGS.device
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
N = int((1 << 28) / ARGS.scale)


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
    for size in (4096, 8192):
        m = round(size / ARGS.scale ** (1 / 3) / 32) * 32
        x = torch.randn(m, m, device=DEVICE, dtype=dtype)
        y = torch.randn(m, m, device=DEVICE, dtype=dtype)
        made[f"matmul_{size}"] = lambda x=x, y=y: x @ y
    vector = torch.randn(1, 4096, device=DEVICE, dtype=dtype)
    weights = torch.randn(14336, 4096, device=DEVICE, dtype=dtype)
    image = torch.randn(max(1, round(32 / ARGS.scale)), 128, 56, 56, device=DEVICE, dtype=dtype)
    kernel = torch.randn(256, 128, 3, 3, device=DEVICE, dtype=dtype)
    q = torch.randn(1, 32, 1024, 128, device=DEVICE, dtype=dtype)
    made["matvec_14336x4096"] = lambda: vector @ weights.t()
    made["conv2d"] = lambda: F.conv2d(image, kernel, padding=1)
    made["sdpa_causal_1k"] = lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return made


def layer_ops(dtype):
    def randn(*shape):
        return torch.randn(*shape, device=DEVICE, dtype=dtype)

    image, kernel, depthwise = randn(4, 32, 56, 56), randn(32, 32, 3, 3), randn(32, 1, 3, 3)
    flat = randn(1 << 22).view(2048, 2048)
    places = torch.randint(0, 2048, (2048, 2048), device=DEVICE)
    x, y = randn(1024, 1024), randn(1024, 1024)
    lstm = torch.nn.LSTM(64, 128, batch_first=True, device=DEVICE, dtype=dtype)
    steps = randn(8, 100, 64)
    learned, weight = image.clone().requires_grad_(), kernel.clone().requires_grad_()

    def backward():
        F.conv2d(learned, weight, padding=1).sum().backward()
        learned.grad = weight.grad = None

    def lstm_steps():
        with torch.no_grad():
            return lstm(steps)

    return {
        "conv2d_small": lambda: F.conv2d(image, kernel, padding=1),
        "conv2d_backward": backward,
        "conv2d_depthwise": lambda: F.conv2d(image, depthwise, padding=1, groups=32),
        "conv_transpose2d": lambda: F.conv_transpose2d(image, kernel, padding=1),
        "max_pool2d": lambda: F.max_pool2d(image, 2),
        "upsample_nearest2d": lambda: F.interpolate(image, (112, 112)),
        "cumsum": lambda: flat.cumsum(-1),
        "flip": lambda: flat.flip(0, 1),
        "gather": lambda: flat.gather(1, places),
        "scatter_add": lambda: torch.zeros_like(flat).scatter_add_(1, places, flat),
        "matmul_1024": lambda: x @ y,
        "lstm_100_steps": lstm_steps,
    }


def launch_ops(_):
    x = torch.randn(1024, device=DEVICE)

    def chain():
        y = x
        for _ in range(1000):
            y = y + 1.0

    return {"launch_1000_small_adds": chain}


def programs(name):
    return program_ops(name, DEVICE)


BATCH_MS = 10  # as in ops.ts


def clocked(run, runs, calls):
    clock = time.process_time if ARGS.processor_time else time.perf_counter
    times = []
    for _ in range(runs):
        begin = clock()
        for _ in range(calls):
            run()
        times.append((clock() - begin) * 1e3 / calls)
    return times


def times_of(run, runs, warm_up):
    begin, done = time.perf_counter(), 0
    while done < warm_up["runs"] or (time.perf_counter() - begin) * 1e3 < warm_up["ms"]:
        run()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        done += 1
    if DEVICE == "cpu":
        calls = max(1, round(BATCH_MS / max(0.01, min(clocked(run, 3, 1))))) if ARGS.processor_time else 1
        return clocked(run, runs, calls)
    times = []
    for _ in range(runs):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return times


LAYERS = {
    "conv2d_small",
    "conv2d_backward",
    "conv2d_depthwise",
    "conv_transpose2d",
    "max_pool2d",
    "upsample_nearest2d",
    "cumsum",
    "flip",
    "gather",
    "scatter_add",
    "matmul_1024",
    "lstm_100_steps",
}


def group_of(name):
    """The maker of the group that `name` is in, its dtype or program, and the key within the group."""
    program = name.rsplit("_", 1)[0]
    if program in PROGRAMS:
        return programs, program, name
    if name.startswith("launch_"):
        return launch_ops, None, name
    if name.startswith("cast_"):
        return cast_ops, None, name
    base, dtype = name.rsplit("_", 1)
    if base.endswith("_152064"):
        return vocabulary_ops, DTYPES[dtype], base
    if base in LAYERS:
        return layer_ops, DTYPES[dtype], base
    heavy = base.startswith(("matmul_", "matvec_", "sdpa_")) or base == "conv2d"
    return (product_ops if heavy else element_ops), DTYPES[dtype], base


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    if ARGS.threads:
        torch.set_num_threads(ARGS.threads)
    opened, ops = None, {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["op"]
        try:
            make, dtype, key = group_of(name)
            if opened != (make, dtype):
                ops = {}
                if DEVICE == "cuda":
                    torch.cuda.empty_cache()
                ops, opened = make(dtype), (make, dtype)
            answer = {"op": name, "ms": times_of(ops[key], asked["runs"], asked["warmUp"])}
        except Exception as error:
            answer = {"op": name, "error": str(error)}
        print(json.dumps(answer), flush=True)


main()
