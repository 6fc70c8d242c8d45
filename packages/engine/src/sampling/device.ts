/** Choosing tokens on the device: samplers as rows of a tensor, and what comes back as choices. */
import {
  type Device,
  FROM_CHOSEN,
  NO_TOKEN,
  SAMPLING_FLAGS,
  SAMPLING_KINDS,
  SAMPLING_PARAMS,
  SAMPLING_ROW_WORDS,
  Tensor,
} from '@x/core';
import type { PieceSizes } from '../execute/step-inputs';
import { type Choice, MAX_TOP, type Sampler } from './sampler';

const EDIT_WORDS = 4;
/** Room for edits that the smallest list has. */
const MIN_EDITS = 64;

/** What the choices of a step have room for. */
export interface ChoiceShape {
  rows: number;
  vocab: number;
  edits: number;
  masked: boolean;
  top: number;
}

/** Pieces of a step's inputs that a choice reads. */
export interface ChoiceSizes extends PieceSizes {
  params: number;
  edits: number;
  masks: number;
}

/** Whether the device chooses from rows of this many logits. */
export function canChoose({ backend }: Device, vocab: number): boolean {
  return backend.sampling?.supports(vocab) ?? false;
}

/** How each row chooses; undefined for one that does not. */
export type RowSamplers = readonly (Sampler | undefined)[];

export function choiceShape(samplers: RowSamplers, vocab: number): ChoiceShape {
  const edits = samplers.reduce((sum, sampler) => sum + (sampler?.edits.length ?? 0), 0);
  return {
    rows: samplers.length,
    vocab,
    edits: edits === 0 ? 0 : Math.max(MIN_EDITS, 2 ** Math.ceil(Math.log2(edits))),
    masked: samplers.some((sampler) => sampler?.mask),
    top: samplers.some((sampler) => sampler && sampler.top > 0) ? MAX_TOP : 0,
  };
}

export function choiceSizes({ rows, vocab, edits, masked }: ChoiceShape): ChoiceSizes {
  return {
    params: rows * SAMPLING_ROW_WORDS,
    edits: edits * EDIT_WORDS,
    masks: masked ? rows * Math.ceil(vocab / 32) : 0,
  };
}

/** Writes samplers to the host's copy of the pieces; rows without one choose nothing. */
export function fillChoices(
  numbers: { piece(name: keyof ChoiceSizes & string): Uint32Array },
  samplers: RowSamplers,
  { vocab }: ChoiceShape,
): void {
  const [params, edits, masks] = (['params', 'edits', 'masks'] as const).map((name) => numbers.piece(name));
  const [paramsF32, editsF32] = [params, edits].map(
    (words) => new Float32Array(words.buffer, words.byteOffset, words.length),
  );
  const at = SAMPLING_PARAMS;
  params.fill(0);
  let edit = 0;
  for (let row = 0; row < samplers.length; row++) {
    const sampler = samplers[row];
    if (!sampler) continue;
    const { kind, mask, logprob } = sampler;
    const first = row * SAMPLING_ROW_WORDS;
    params[first + at.kind] = SAMPLING_KINDS[kind];
    params[first + at.flags] = (mask ? SAMPLING_FLAGS.masked : 0) + (logprob ? SAMPLING_FLAGS.logprob : 0);
    paramsF32[first + at.inverseTemperature] = sampler.inverseTemperature;
    params[first + at.topK] = sampler.topK;
    params[first + at.topP] = sampler.topP;
    paramsF32[first + at.leastLogit] = sampler.leastLogit;
    params[first + at.typicalP] = sampler.typicalP;
    params[first + at.uniform] = sampler.uniform;
    params[first + at.top] = sampler.top;
    params[first + at.firstEdit] = edit;
    for (const { id, positive, negative, add } of sampler.edits) {
      if (id >= vocab) continue;
      edits[edit * EDIT_WORDS] = id;
      editsF32.set([positive, negative, add], edit * EDIT_WORDS + 1);
      edit++;
    }
    params[first + at.edits] = edit - params[first + at.firstEdit];
    if (!mask) continue;
    const words = Math.ceil(vocab / 32);
    const own = masks.subarray(row * words, (row + 1) * words);
    own.fill(0);
    own.set(mask.subarray(0, words));
  }
}

/** Enqueues the choices: what {@link readChoices} takes. @param logits [rows, vocab], overwritten */
export function enqueueChoices(
  logits: Tensor,
  pieces: { readonly [Name in keyof ChoiceSizes]: Tensor },
  { rows, vocab, edits, masked, top }: ChoiceShape,
): Tensor {
  const { device } = logits;
  const words = device.backend.sampling!.choose({
    rows,
    vocab,
    top,
    logits: logits.storagePart(),
    params: pieces.params.storagePart(),
    ...(edits > 0 && { edits: pieces.edits.storagePart() }),
    ...(masked && { masks: pieces.masks.storagePart() }),
  });
  return Tensor.fromStorage(words, [rows, 2 + 2 * top], device);
}

/** In place of an id: what a row of the step before chooses. */
export function idOfRow(row: number): number {
  return FROM_CHOSEN + row;
}

export function isIdOfRow(id: number): boolean {
  return id >= FROM_CHOSEN;
}

/** Enqueues the ids with those in place of which {@link idOfRow} stands. @param chosen [rows], u32, by {@link keepChosen} */
export function enqueueIds(ids: Tensor, chosen: Tensor, vocab: number): Tensor {
  const { device } = ids;
  const rows = ids.dim(0);
  const followed = device.backend.sampling!.follow({
    rows,
    vocab,
    ids: ids.storagePart(),
    chosen: chosen.storagePart(),
  });
  return Tensor.fromStorage(followed, [rows], device);
}

/** Enqueues the copy of the ids of {@link enqueueChoices} to the first rows of `chosen`. */
export function keepChosen(words: Tensor, chosen: Tensor): void {
  const rows = words.dim(0);
  chosen.narrow(0, 0, rows).copyFrom(words.narrow(1, 0, 1).reshape([rows]));
}

/** Reads what the rows with a sampler chose; undefined for one whose logits are bad. */
export async function readChoices(words: Tensor, samplers: RowSamplers): Promise<(Choice | undefined)[]> {
  const [, width] = words.shape;
  const ids = await words.toArray<Uint32Array>();
  const values = new Float32Array(ids.buffer, ids.byteOffset, ids.length);
  const read = ({ logprob, top }: Sampler, first: number): Choice | undefined => {
    const id = ids[first];
    if (id === NO_TOKEN) return undefined;
    if (!logprob) return { id };
    const choice: Choice = { id, logprob: values[first + 1] };
    if (top === 0) return choice;
    const room = width / 2 - 1;
    const listed = Array.from({ length: top }, (_, i) => ({
      id: ids[first + 2 + i],
      logprob: values[first + 2 + room + i],
    }));
    return { ...choice, top: listed.filter((token) => token.id !== NO_TOKEN) };
  };
  return samplers.flatMap((sampler, row) => (sampler ? [read(sampler, row * width)] : []));
}
