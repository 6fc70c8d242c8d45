"""
Writes packages/quantized/test/fixtures/mxfp4.json: random MXFP4 weights as gpt-oss checkpoints hold them, every scale in use and
every nibble, and the numbers that transformers makes of them.

  python tools/golden/mxfp4.py      with torch 2.13 and transformers 5.18
"""
import json, os
import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

generator = torch.Generator().manual_seed(3)
blocks = torch.randint(0, 256, (2, 6, 2, 16), generator=generator, dtype=torch.uint8)
scales = torch.randint(110, 135, (2, 6, 2), generator=generator, dtype=torch.uint8)
# transformers gives [experts, in, out], which its model multiplies from the right.
values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
values[values == 0] = 0  # ggml has no -0
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../packages/quantized/test/fixtures/mxfp4.json")
with open(path, "w") as file:
    json.dump({"blocks": blocks.flatten().tolist(), "scales": scales.flatten().tolist(), "shape": list(values.shape),
               "values": values.flatten().tolist()}, file)
    file.write("\n")
