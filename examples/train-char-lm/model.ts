// A decoder of the Llama kind over characters: root-mean-square norms, causal attention with rotary positions, and a
// feed-forward part with GELU. Every layer comes from the VarBuilder, which makes and names its variables.
import { type Device, nn, scope, type Tensor } from '@x/candle';

export interface ModelConfig {
  /** Characters that there are. */
  alphabet: number;
  /** Characters that the model sees at once. */
  context: number;
  width: number;
  heads: number;
  layers: number;
}

class Attention {
  readonly #query: nn.Linear;
  readonly #key: nn.Linear;
  readonly #value: nn.Linear;
  readonly #out: nn.Linear;

  constructor(
    private readonly config: ModelConfig,
    private readonly rotary: nn.RotaryTable,
    vb: nn.VarBuilder,
  ) {
    const { width } = config;
    this.#query = nn.linearNoBias(width, width, vb.pp('query'));
    this.#key = nn.linearNoBias(width, width, vb.pp('key'));
    this.#value = nn.linearNoBias(width, width, vb.pp('value'));
    this.#out = residual(width, config, vb.pp('out'));
  }

  /** [batch, time, width] to the same. */
  forward(xs: Tensor): Tensor {
    const [batch, time, width] = xs.shape;
    const { heads } = this.config;
    const split = (ys: Tensor) => ys.reshape([batch, time, heads, width / heads]);
    const { cos, sin } = this.rotary.at(0, time);
    const turn = (ys: Tensor) => split(ys).rope(cos, sin, 'thd').transpose(1, 2);
    const query = turn(this.#query.forward(xs));
    const key = turn(this.#key.forward(xs));
    const value = split(this.#value.forward(xs)).transpose(1, 2);
    const mixed = nn.sdpa(query, key, value, { causal: true });
    return this.#out.forward(mixed.transpose(1, 2).reshape([batch, time, width]));
  }
}

class Block {
  readonly #norm: nn.RmsNorm;
  readonly #attention: Attention;
  readonly #feedNorm: nn.RmsNorm;
  readonly #up: nn.Linear;
  readonly #down: nn.Linear;

  constructor(config: ModelConfig, rotary: nn.RotaryTable, vb: nn.VarBuilder) {
    const { width } = config;
    this.#norm = nn.rmsNorm(width, 1e-5, vb.pp('norm'));
    this.#attention = new Attention(config, rotary, vb.pp('attention'));
    this.#feedNorm = nn.rmsNorm(width, 1e-5, vb.pp('feed_norm'));
    this.#up = nn.linearNoBias(width, 4 * width, vb.pp('up'));
    this.#down = residual(4 * width, config, vb.pp('down'));
  }

  forward(xs: Tensor): Tensor {
    const attended = xs.add(this.#attention.forward(this.#norm.forward(xs)));
    const inner = this.#up.forward(this.#feedNorm.forward(attended)).gelu();
    return attended.add(this.#down.forward(inner));
  }
}

export class CharModel {
  readonly #embedding: nn.Embedding;
  readonly #blocks: Block[];
  readonly #norm: nn.RmsNorm;
  readonly #head: nn.Linear;

  constructor(
    readonly config: ModelConfig,
    vb: nn.VarBuilder,
  ) {
    const { alphabet, width, heads, layers, context } = config;
    const half = width / heads / 2;
    const frequencies = Float64Array.from({ length: half }, (_, i) => 10000 ** (-i / half));
    const rotary = new nn.RotaryTable({ frequencies, length: context, device: vb.device });
    this.#embedding = nn.embedding(alphabet, width, vb.pp('embedding'));
    this.#blocks = Array.from({ length: layers }, (_, i) => new Block(config, rotary, vb.pp(`blocks.${i}`)));
    this.#norm = nn.rmsNorm(width, 1e-5, vb.pp('norm'));
    // Starts small: every character is about as likely as any other at first.
    this.#head = new nn.Linear(vb.pp('head').getWithHintsSync([alphabet, width], 'weight', nn.Init.randn(0, 0.02)));
  }

  get device(): Device {
    return this.#embedding.embeddings.device;
  }

  /** ids [batch, time] to logits [batch, time, alphabet]. */
  forward(ids: Tensor): Tensor {
    return scope(() => {
      let xs = this.#embedding.forward(ids);
      for (const block of this.#blocks) xs = block.forward(xs);
      return this.#head.forward(this.#norm.forward(xs));
    });
  }
}

/** A layer whose result is added to what it came from: it starts smaller, the more such layers there are. */
function residual(inputs: number, { width, layers }: ModelConfig, vb: nn.VarBuilder): nn.Linear {
  const stdev = 1 / Math.sqrt(2 * layers * inputs);
  return new nn.Linear(vb.getWithHintsSync([width, inputs], 'weight', nn.Init.randn(0, stdev)));
}
