/**
 * What chooses tokens on a device: it keeps those that were chosen last there, for a step that begins before the host has read
 * them.
 */
import { type Device, keep, scope, Tensor } from '@x/core';
import { MAX_PARTS, MAX_ROWS } from '../execute/batch';
import { piecesOf, StepNumbers } from '../execute/step-inputs';
import {
  choiceShape,
  choiceSizes,
  enqueueChoices,
  enqueueIds,
  fillChoices,
  keepChosen,
  type RowSamplers,
  readChoices,
} from './device';
import type { Choice } from './sampler';

export class DeviceChooser {
  /** [MAX_ROWS + MAX_PARTS], u32. */
  private chosen: Tensor | undefined;

  constructor(
    private readonly device: Device,
    private readonly vocab: number,
  ) {}

  /**
   * The choices of the rows that have a sampler, in their order; undefined where logits are bad.
   * @param logits [samplers or more, vocab], overwritten
   * @param isStep of a decode step: {@link followed} then means its rows
   */
  async choose(logits: Tensor, samplers: RowSamplers, isStep: boolean): Promise<(Choice | undefined)[]> {
    const shape = choiceShape(samplers, this.vocab);
    const numbers = new StepNumbers(choiceSizes(shape));
    fillChoices(numbers, samplers, shape);
    using words = scope(() => {
      const { device } = this;
      const all = Tensor.fromArray(numbers.values, [numbers.values.length], { device });
      const pieces = piecesOf(all, numbers.sizes);
      return keep(enqueueChoices(logits, pieces, shape));
    });
    if (isStep) scope(() => keepChosen(words, this.kept));
    return await readChoices(words, samplers);
  }

  /** Ids, u32, with what rows of the last step chose where they stand for it (`idOfRow`). May be captured. */
  followed(ids: Tensor): Tensor {
    return enqueueIds(ids, this.kept, this.vocab);
  }

  /** What {@link followed} reads. It is made before a capture. */
  get kept(): Tensor {
    this.chosen ??= scope(() => keep(Tensor.zeros([MAX_ROWS + MAX_PARTS], { dtype: 'u32', device: this.device })));
    return this.chosen;
  }

  /** Gives the memory back, after graphs that read it. It is made again when there are choices. */
  dispose(): void {
    this.chosen?.dispose();
    this.chosen = undefined;
  }
}
