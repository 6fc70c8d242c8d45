// A fused kernel of your own: SwiGLU, silu(gate) · up, in one pass over memory instead of two, with its gradient. The same
// HIP source is compiled when the program runs, for the CPU by clang, for AMD GPUs by hiprtc, for NVIDIA GPUs by NVRTC.
// Run from the repository: tsx examples/custom-kernel/main.ts [--device cpu] [--size 4000000] [--json]
import { type core, Device, scope, Tensor, Var } from '@x/candle';
import { DEVICE, JSON_FLAG, readFlags, runExample } from '../flags';

const SOURCE = `
#include "x.h"

KERNEL(swiglu, (u64 n, const float* gate, const float* up, float* out)) {
  X_FOR_EACH(i, n) out[i] = gate[i] / (1.0f + m::exp(-gate[i])) * up[i];
}

KERNEL(swiglu_grad, (u64 n, const float* gate, const float* up, const float* grad, float* gate_grad, float* up_grad)) {
  X_FOR_EACH(i, n) {
    const float s = 1.0f / (1.0f + m::exp(-gate[i]));
    gate_grad[i] = grad[i] * up[i] * s * (1.0f + gate[i] * (1.0f - s));
    up_grad[i] = grad[i] * gate[i] * s;
  }
}`;

/** silu(gate) · up of f32 tensors of one shape, with a gradient, by kernels compiled for `device`. */
function compileSwiglu(device: Device): (gate: Tensor, up: Tensor) => Tensor {
  const program = device.compile(SOURCE);
  const [forward, backward] = [program.kernel('swiglu'), program.kernel('swiglu_grad')];
  const swiglu: core.CustomOp2 = {
    name: 'swiglu',
    fwd(gate, gateLayout, up, upLayout) {
      const { elemCount, shape } = gateLayout;
      const out = device.backend.allocUninit(elemCount, 'f32');
      forward.launch(elemCount, [elemCount, [gate, gateLayout.startOffset], [up, upLayout.startOffset], out]);
      return [out, shape];
    },
    bwd(gate, up, _result, grad) {
      const { elemCount, shape } = gate;
      const [gateGrad, upGrad] = [Tensor.empty(shape, 'f32', device), Tensor.empty(shape, 'f32', device)];
      const tensors = [gate, up, grad.contiguous(), gateGrad, upGrad];
      backward.launch(elemCount, [elemCount, ...tensors.map(placeOf)]);
      return [gateGrad, upGrad];
    },
  };
  return (gate, up) => {
    if (gate.dtype !== 'f32' || up.dtype !== 'f32' || gate.shape.join() !== up.shape.join()) {
      throw new TypeError(`swiglu: ${gate.describe()} and ${up.describe()}; give two f32 tensors of one shape.`);
    }
    // The kernels take elements as they lie in memory; views with strides are copied first.
    return scope(() => gate.contiguous().applyOp2(up.contiguous(), swiglu));
  };
}

/** Where the first element of a tensor is, as a kernel's argument. */
function placeOf(tensor: Tensor): core.KernelArgument {
  const { storage, layout } = tensor.storageAndLayout();
  return [storage, layout.startOffset];
}

async function main(): Promise<void> {
  const values = readFlags(import.meta.url, {
    device: DEVICE,
    size: { type: 'number', help: 'elements', default: 4_000_000, from: 1 },
    json: JSON_FLAG,
  });
  const device = values.device ? Device.parse(values.device) : await Device.auto();
  const fused = compileSwiglu(device);
  const composed = (gate: Tensor, up: Tensor) => scope(() => gate.silu().mul(up));
  device.setSeed(1);
  using gate = Var.randn(0, 2, [values.size], 'f32', device);
  using up = Var.randn(0, 2, [values.size], 'f32', device);

  const ours = await run(fused, gate, up);
  const theirs = await run(composed, gate, up);
  const names = ['result', 'gradient of gate', 'gradient of up'];
  const errors = await Promise.all(names.map((_, i) => relativeDifference(ours.tensors[i], theirs.tensors[i])));
  for (const tensor of [...ours.tensors, ...theirs.tensors]) tensor.dispose();
  const maxError = Math.max(...errors);
  if (values.json) {
    const [fusedMs, composedMs] = [ours.ms, theirs.ms];
    console.log(JSON.stringify({ device: `${device}`, size: gate.elemCount, maxError, fusedMs, composedMs }));
  } else {
    console.log(`swiglu of ${gate.elemCount} elements and its gradient on ${device}`);
    names.forEach((name, i) => {
      console.log(`  ${name.padEnd(16)} differs by ${errors[i].toExponential(1)} of its largest element at most`);
    });
    console.log(`kernels of our own: ${ours.ms.toFixed(2)} ms; operations one by one: ${theirs.ms.toFixed(2)} ms`);
  }
  if (!(maxError < 1e-6)) throw new Error(`the kernels differ by ${maxError} from the operations that they replace`);
}

/** Result and gradients of a function of two variables, and the time in which it gives them: the best of five. */
async function run(swiglu: (gate: Tensor, up: Tensor) => Tensor, gate: Var, up: Var) {
  let [tensors, ms]: [Tensor[], number] = [[], Infinity];
  for (let i = 0; i < 5; i++) {
    for (const tensor of tensors) tensor.dispose();
    const started = performance.now();
    tensors = scope(() => {
      const result = swiglu(gate, up);
      const grads = result.sqr().backward();
      return [result, grads.get(gate)!, grads.get(up)!];
    });
    await gate.device.synchronize();
    ms = Math.min(ms, performance.now() - started);
  }
  return { tensors, ms };
}

async function relativeDifference(ours: Tensor, theirs: Tensor): Promise<number> {
  using ratio = scope(() => ours.sub(theirs).abs().maxAll().div(theirs.abs().maxAll()));
  return Number(await ratio.toScalar());
}

runExample(main);
