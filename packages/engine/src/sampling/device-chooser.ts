/**
 * What chooses tokens on a device, step after step: it has the memory that samplers are written to, and keeps the tokens that
 * were chosen last on the device, for a step that begins before the host has read them.
 */
import { type Device, keep, scope, Tensor } from '@x/core';
import { MAX_ROWS } from '../execute/batch';
import { StepInputs, StepNumbers } from '../execute/step-inputs';
import {
  type ChoiceShape,
  type ChoiceSizes,
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

/** Shapes of samplers that memory is kept for; the one used longest ago goes. */
const MAX_SHAPES = 8;

interface Room {
  numbers: StepNumbers<ChoiceSizes>;
  inputs: StepInputs<ChoiceSizes>;
}

export class DeviceChooser {
  private readonly rooms = new Map<string, Room>();
  /** [MAX_ROWS], u32. */
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
    const shape = choiceShape(samplers, 2 ** Math.ceil(Math.log2(samplers.length)), this.vocab);
    const { numbers, inputs } = this.roomFor(shape);
    fillChoices(numbers, samplers, shape);
    inputs.write(numbers.values);
    using words = scope(() => keep(enqueueChoices(logits, inputs.pieces, { ...shape, rows: samplers.length })));
    if (isStep) scope(() => keepChosen(words, this.kept));
    return await readChoices(words, samplers);
  }

  /** Ids, u32, with what rows of the last step chose where they stand for it (`idOfRow`). May be captured. */
  followed(ids: Tensor): Tensor {
    return enqueueIds(ids, this.kept, this.vocab);
  }

  /** What {@link followed} reads. It is made before a capture. */
  get kept(): Tensor {
    this.chosen ??= scope(() => keep(Tensor.zeros([MAX_ROWS], { dtype: 'u32', device: this.device })));
    return this.chosen;
  }

  /** Gives the memory back, after graphs that read it. It is made again when there are choices. */
  dispose(): void {
    for (const { inputs } of this.rooms.values()) inputs.dispose();
    this.rooms.clear();
    this.chosen?.dispose();
    this.chosen = undefined;
  }

  private roomFor(shape: ChoiceShape): Room {
    const key = `${shape.rows} ${shape.edits} ${shape.masked} ${shape.top}`;
    let room = this.rooms.get(key);
    if (!room) {
      const sizes = choiceSizes(shape);
      room = { numbers: new StepNumbers(sizes), inputs: new StepInputs(this.device, sizes) };
    }
    this.rooms.delete(key);
    this.rooms.set(key, room);
    for (const [oldest, { inputs }] of this.rooms) {
      if (this.rooms.size <= MAX_SHAPES) break;
      inputs.dispose();
      this.rooms.delete(oldest);
    }
    return room;
  }
}
