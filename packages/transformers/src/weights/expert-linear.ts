/** Linear layers of which each token chooses some: the experts of a mixture. */
import { keep, scope, type Tensor } from '@x/core';
import { type DenseDType, type ExpertOrder, ExpertSlots, QTensor } from '@x/quantized';
import { inDtype } from './q-linear';
import type { WeightOptions } from './weights';

export class ExpertLinear {
  /** [experts, out, in], or as many as there are slots: what ids count. */
  readonly weight: QTensor;
  /** [experts, out] of the same, f32 */
  readonly bias: Tensor | undefined;
  private readonly slots: readonly ExpertSlots[];

  /**
   * Owns both. @param weight [experts, out, in] @param dtype that inputs are rounded to
   * @param bias [experts, out], f32; where the weight has slots, slots of [experts, out, 1]
   */
  constructor(
    weight: QTensor | ExpertSlots,
    private readonly dtype: DenseDType,
    bias?: Tensor | ExpertSlots,
  ) {
    this.slots = [weight, bias].filter((part) => part instanceof ExpertSlots);
    this.weight = weight instanceof ExpertSlots ? weight.weight : weight;
    this.bias = bias instanceof ExpertSlots ? bias.weight.data.squeeze(2) : bias;
    keep([this.weight, this.bias, ...this.slots]);
  }

  /**
   * A layer whose experts stay in host memory. Shares the weight and reads the bias, which both stay the caller's.
   * @param weight [experts, out, in] on `ExpertSlots.hostDevice` @param slots experts that the device has room for
   */
  static async onHost(
    weight: QTensor,
    slots: number,
    { device, dtype, activations }: Pick<WeightOptions, 'device' | 'dtype'> & { activations: DenseDType },
    bias?: Tensor,
  ): Promise<ExpertLinear> {
    const made: ExpertSlots[] = [];
    try {
      made.push(ExpertSlots.of(weight, slots, device, dtype));
      if (bias) {
        using onHost = await bias.toDevice(ExpertSlots.hostDevice);
        made.push(scope(() => ExpertSlots.of(QTensor.fromTensor(onHost.unsqueeze(2)), slots, device)));
      }
      return new ExpertLinear(made[0], activations, made[1]);
    } catch (error) {
      for (const part of made) part.dispose();
      throw error;
    }
  }

  /** That ids count. */
  get experts(): number {
    return this.weight.shape[0];
  }

  /** Experts of the mixture. */
  get all(): number {
    return this.slots[0]?.experts ?? this.experts;
  }

  /** Of an expert on the host; 0 where there are none. */
  get expertBytes(): number {
    return this.slots.reduce((sum, part) => sum + part.expertBytes, 0);
  }

  /** Bytes of all experts on the host that are page-locked. */
  get pinnedBytes(): number {
    return this.slots.reduce((sum, part) => sum + part.pinnedBytes, 0);
  }

  /** Copies an expert from the host to a slot. */
  put(slot: number, expert: number): void {
    for (const part of this.slots) part.put(slot, expert);
  }

  /** Whether {@link forwardGroups} is the faster way for so many tokens. */
  prefersGroups(tokens: number, chosen: number): boolean {
    return this.weight.prefersGroups(tokens, chosen, this.all);
  }

  /**
   * x [tokens, chosen or 1, in] times the weights of the experts that each token chose, ids [tokens, chosen], u32, in range:
   * [tokens, chosen, out] in f32. The ids stay on the device where the tokens are few.
   */
  forward(x: Tensor, ids: Tensor): Tensor {
    const options = { readIds: false, areInside: true, experts: this.all };
    const ys = this.weight.indexedMoeForwardSync(this.rounded(x), ids, options);
    if (!this.bias) return ys;
    return ys.add(this.bias.indexSelect(ids.flattenAll(), 0).reshape(ys.shape));
  }

  /** Rows x [pairs, in] in the order of `order`: [pairs, out] in f32. */
  forwardGroups(x: Tensor, order: ExpertOrder): Tensor {
    const ys = this.weight.groupedMoe(this.rounded(x), order);
    return this.bias ? ys.add(this.bias.indexSelect(order.owners, 0)) : ys;
  }

  /** f32, so that products give f32. */
  private rounded(x: Tensor): Tensor {
    return inDtype(inDtype(x, this.dtype), 'f32');
  }

  dispose(): void {
    for (const part of [this.weight, this.bias, ...this.slots]) part?.dispose();
  }
}
