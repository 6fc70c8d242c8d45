/**
 * Whole programs that `tools/bench/ops.ts --programs` times: a training step or a forward pass of small models, with shapes, layers and
 * optimizers as in `torch_programs.py` beside it. Weights and inputs are random f32; what is timed is what the program does again and
 * again.
 */
import { type Device, noGrad, scope, Tensor } from '@x/core';
import { AdamW, clipGradNorm, conv2d, embedding, layerNorm, linear, loss, lstm, sdpa, VarBuilder, VarMap } from '@x/nn';
import { CharModel } from '../../examples/train-char-lm/model';
import type { BenchGroup } from './op-list';

/** A model's variables, and what it makes of its inputs. */
interface Program {
  forward(): Tensor;
  /** The classes that the rows of what `forward` gives are to be, for a training step. */
  targets: Tensor;
}

type Build = (vb: VarBuilder, made: Made) => Program;

const CHAR_LM = { alphabet: 80, context: 64, width: 128, heads: 4, layers: 3 };

const PROGRAMS: Record<string, Build> = {
  char_lm(vb, made) {
    const model = new CharModel(CHAR_LM, vb);
    const ids = made.classes(CHAR_LM.alphabet, [24, CHAR_LM.context]);
    return { forward: () => rows(model.forward(ids)), targets: made.classes(CHAR_LM.alphabet, [24 * CHAR_LM.context]) };
  },
  lstm(vb, made) {
    const table = embedding(80, 64, vb.pp('table'));
    const layer = lstm(64, 128, {}, vb.pp('lstm'));
    const head = linear(128, 80, vb.pp('head'));
    const ids = made.classes(80, [16, 100]);
    return { forward: () => rows(head.forward(layer.forward(table.forward(ids)))), targets: made.classes(80, [1600]) };
  },
  cnn(vb, made) {
    const conv = (from: number, to: number, name: string) => conv2d(from, to, 3, { padding: 1 }, vb.pp(name));
    const [first, second, third] = [conv(3, 32, 'first'), conv(32, 64, 'second'), conv(64, 64, 'third')];
    const [inner, head] = [linear(4096, 128, vb.pp('inner')), linear(128, 10, vb.pp('head'))];
    const images = made.randn([32, 3, 32, 32]);
    const forward = () => {
      const half = second.forward(first.forward(images).relu()).relu().maxPool2d(2);
      const quarter = third.forward(half).relu().maxPool2d(2);
      return head.forward(inner.forward(quarter.reshape([32, 4096])).relu());
    };
    return { forward, targets: made.classes(10, [32]) };
  },
  vit_block(vb, made) {
    const [width, heads, batch, time] = [384, 6, 4, 197];
    const norms = ['norm', 'feed_norm'].map((name) => layerNorm(width, 1e-5, vb.pp(name)));
    const [qkv, out] = [linear(width, 3 * width, vb.pp('qkv')), linear(width, width, vb.pp('out'))];
    const [up, down] = [linear(width, 4 * width, vb.pp('up')), linear(4 * width, width, vb.pp('down'))];
    const xs = made.randn([batch, time, width]);
    const forward = () => {
      const parts = qkv.forward(norms[0].forward(xs)).reshape([batch, time, 3, heads, width / heads]);
      const [query, key, value] = [0, 1, 2].map((i) => parts.narrow(2, i, 1).squeeze(2).transpose(1, 2));
      const mixed = sdpa(query, key, value).transpose(1, 2).reshape([batch, time, width]);
      const attended = xs.add(out.forward(mixed));
      return rows(attended.add(down.forward(up.forward(norms[1].forward(attended)).geluErf())));
    };
    return { forward, targets: made.classes(width, [batch * time]) };
  },
};

/** A forward pass without gradients, and a step of AdamW with the gradients' norm clipped, of each. */
export function programGroups(): BenchGroup[] {
  return Object.entries(PROGRAMS).map(([name, build]) => ({
    names: [`${name}_forward`, `${name}_step`],
    open(device) {
      const vars = new VarMap();
      const made = new Made(device);
      const { forward, targets } = build(VarBuilder.fromVarMap(vars, { dtype: 'f32', device }), made);
      const optimizer = new AdamW(vars.allVars(), { lr: 1e-4 });
      return {
        ops: [
          { name: `${name}_forward`, run: () => noGrad(() => scope(() => forward())).dispose() },
          {
            name: `${name}_step`,
            run: () =>
              scope(() => {
                const grads = loss.crossEntropy(forward(), targets).backward();
                clipGradNorm(grads, optimizer.vars, 1);
                optimizer.step(grads);
              }),
          },
        ],
        close() {
          optimizer.dispose();
          vars.dispose();
          made.dispose();
        },
      };
    },
  }));
}

/** [..., n] as rows of n. */
function rows(xs: Tensor): Tensor {
  return xs.reshape([xs.elemCount / xs.dim(-1), xs.dim(-1)]);
}

/** Inputs that live as long as their group. */
class Made {
  readonly #tensors: Tensor[] = [];

  constructor(private readonly device: Device) {}

  randn(shape: number[]): Tensor {
    return this.#keep(Tensor.randn(0, 1, shape, 'f32', this.device));
  }

  classes(count: number, shape: number[]): Tensor {
    const size = shape.reduce((product, dim) => product * dim, 1);
    const values = Uint32Array.from({ length: size }, (_, i) => (i * 40503) % count);
    return this.#keep(Tensor.from(values, { shape, device: this.device }));
  }

  dispose(): void {
    for (const tensor of this.#tensors) tensor.dispose();
  }

  #keep(tensor: Tensor): Tensor {
    this.#tensors.push(tensor);
    return tensor;
  }
}
