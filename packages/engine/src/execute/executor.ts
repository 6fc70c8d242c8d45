/**
 * One rank of a model: its weights, the memory of its cache and its captured steps. It computes what it is told in numbers,
 * and decides nothing. The rank that leads tells the others what it does itself, in the same order, so that all make the same
 * calls: what several ranks compute together needs nothing else.
 */
import type { Communicator, Tensor } from '@x/core';
import type { Batch, CausalModel, ForwardPass } from '@x/transformers';
import type { MemoryChange } from '../kv/change';
import type { KvMemory } from '../kv/memory';
import { PagedKv } from '../kv/paged';
import { spansOf } from '../kv/spans';
import type { Shard } from '../load/build-model';
import type { DeviceChooser } from '../sampling/device-chooser';
import { disposeSegments, type GraphShape, type PassNumbers, promptStart, segmentsOf, tilesOf } from './batch';
import { type Following, followed } from './followed';
import { roundedAs } from './rounded';
import { type StepExtras, StepGraphs } from './step-graphs';
import { StepInputs } from './step-inputs';

/** What the rank that leads does, for the others to do as well. */
export type Command =
  | { kind: 'memory'; change: MemoryChange }
  | { kind: 'begin'; pass: number; numbers: PassNumbers }
  | { kind: 'advance'; pass: number }
  | { kind: 'leave'; pass: number }
  | { kind: 'capture'; graph: string; shape: GraphShape; values: Uint32Array; follows: boolean }
  | { kind: 'replay'; graph: string; values: Uint32Array }
  | { kind: 'drop'; graph: string };

/** The ranks that are told. */
export interface Followers {
  /** @throws the failure that ended the group */
  tell(command: Command): void;
  /** Does this rank's part; what it throws ends the group. @throws the failure */
  own<T>(part: () => T): T;
  /** What a device or a rank gives later. It is the failure, where the group fails meanwhile. */
  settle<T>(work: Promise<T>): Promise<T>;
  /** The failure, when all is known about it; undefined while the group works. */
  reason(): Promise<Error | undefined>;
  readonly failure: Error | undefined;
  /** Of all ranks, while the group works. */
  readonly communicator: Communicator | undefined;
  /** What ranks have of the model. */
  readonly split?: Shard['split'];
}

export class Executor {
  private readonly graphs: StepGraphs;
  private passes = 0;

  /**
   * @param followers of the rank that leads; none where there is one rank, or another one leads
   * @param communicator of all ranks
   */
  constructor(
    readonly model: CausalModel,
    readonly memory: KvMemory,
    private readonly followers?: Followers,
    private readonly communicator = followers?.communicator,
  ) {
    this.graphs = new StepGraphs(model, memory);
  }

  /**
   * Computes a pass: logits of the rows that are wanted, the caller's to dispose.
   * @param chooser whose last choices may be tokens of the pass; of the rank that leads
   */
  pass(numbers: PassNumbers, lora?: Batch['lora'], chooser?: DeviceChooser): ForwardPass {
    const { followers } = this;
    return followers ? this.together(followers, numbers, chooser) : this.alone(numbers, lora, chooser);
  }

  /** As {@link StepGraphs.capture}. @param follows whether tokens may be choices of the rank that leads; its own default: its chooser's */
  capture(
    key: string,
    shape: GraphShape,
    values: Uint32Array,
    extras: Omit<StepExtras, 'communicator'> = {},
    follows = extras.chooser !== undefined,
  ) {
    const { graphs, followers } = this;
    const own = { ...extras, ...this.following(extras.chooser, follows) };
    if (!followers) return graphs.capture(key, shape, values, own);
    followers.tell({ kind: 'capture', graph: key, shape, values: values.slice(), follows });
    return followers.own(() => graphs.capture(key, shape, values, own));
  }

  /** As {@link StepGraphs.replay}. */
  replay(key: string, values: Uint32Array): Tensor {
    const { graphs, followers } = this;
    if (!followers) return graphs.replay(key, values);
    followers.tell({ kind: 'replay', graph: key, values: values.slice() });
    return followers.own(() => graphs.replay(key, values));
  }

  /** As {@link StepGraphs.drop}. */
  drop(key: string): void {
    const { followers } = this;
    if (followers && !followers.failure) followers.tell({ kind: 'drop', graph: key });
    this.graphs.drop(key);
  }

  /** Gives captured steps back: of this rank. */
  dispose(): void {
    this.graphs.dispose();
  }

  private following(chooser: DeviceChooser | undefined, follows: boolean): Following {
    return { chooser, communicator: follows ? this.communicator : undefined };
  }

  private *together(followers: Followers, numbers: PassNumbers, chooser?: DeviceChooser): ForwardPass {
    const pass = this.passes++;
    const told = { ...numbers, follows: chooser !== undefined };
    followers.tell({ kind: 'begin', pass, numbers: told });
    const own = this.alone(told, undefined, chooser);
    let isOver = false;
    try {
      for (;;) {
        followers.tell({ kind: 'advance', pass });
        const step = followers.own(() => own.next());
        isOver = step.done === true;
        if (step.done) return step.value;
        yield step.value;
      }
    } finally {
      if (!isOver) {
        own.return(undefined);
        if (!followers.failure) followers.tell({ kind: 'leave', pass });
      }
    }
  }

  private *alone(numbers: PassNumbers, lora?: Batch['lora'], chooser?: DeviceChooser): ForwardPass {
    const { model, memory } = this;
    const { counts, logits, follows = false } = numbers;
    const inputs = new StepInputs(model.device, numbers.sizes);
    let chosen: Tensor | undefined;
    try {
      inputs.write(numbers.values);
      const { positions, slots, outputs } = inputs.pieces;
      chosen = followed(inputs.pieces.tokens, this.following(chooser, follows));
      const tokens = chosen ?? inputs.pieces.tokens;
      const segments = segmentsOf(numbers.segments, inputs.pieces);
      const tiles = tilesOf(promptStart(numbers.segments), inputs.pieces);
      const view = new PagedKv(memory, slots, segments, memory.states && spansOf(inputs.pieces, counts), tiles);
      const wanted = !logits ? 'none' : tokens.dim(0) === outputs.dim(0) ? 'all' : outputs;
      try {
        return yield* roundedAs(
          numbers.roundsAs,
          model,
          model.pass({ tokens, positions, outputs: wanted, lora }, view),
        );
      } finally {
        view.dispose();
        disposeSegments(segments);
        tiles?.tiles.dispose();
      }
    } finally {
      chosen?.dispose();
      inputs.dispose();
    }
  }
}

/** A rank that is told: makes what the leading rank does. */
export class Obedience {
  private readonly passes = new Map<number, ForwardPass>();

  constructor(private readonly executor: Executor) {}

  obey(command: Command): void {
    const { executor, passes } = this;
    switch (command.kind) {
      case 'memory':
        executor.memory.apply(command.change);
        break;
      case 'begin':
        passes.set(command.pass, executor.pass(command.numbers));
        break;
      case 'advance': {
        const step = passes.get(command.pass)!.next();
        if (!step.done) break;
        passes.delete(command.pass);
        step.value?.dispose();
        break;
      }
      case 'leave':
        passes.get(command.pass)?.return(undefined);
        passes.delete(command.pass);
        break;
      case 'capture':
        executor.capture(command.graph, command.shape, command.values, {}, command.follows);
        break;
      case 'replay':
        executor.replay(command.graph, command.values);
        break;
      case 'drop':
        executor.drop(command.graph);
        break;
    }
  }

  /** Leaves what is under way. */
  dispose(): void {
    for (const pass of this.passes.values()) pass.return(undefined);
    this.passes.clear();
  }
}
