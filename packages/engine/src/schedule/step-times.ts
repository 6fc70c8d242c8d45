/** What decode steps take, and what follows from that for the next ones. */
import type { QueuedPart } from './prompt-queue';

/** How many tokens of prompts a step takes along: as many as make it last so long, which is measured. */
const ALONG_MS = 24;
const ALONG_TOKENS = { first: 512, least: 64 };
/** How a step goes out: launch by launch, as a graph, or as a graph whose parts the host waits for. */
export type StepKind = keyof typeof UNWATCHED_MS;

/**
 * Shorter steps go out in one go: an abort can wait for their end, and watching them takes time. A graph would be given up for it,
 * also where only a busy host makes its steps long. While the host waits for parts of a graph, nothing else has its turn.
 */
const UNWATCHED_MS = { launched: 50, waited: 250, replayed: 1000 };

export class StepTimes {
  /** Steps so far, and what the last one took with what was in front of it. */
  lately = { steps: 0, stepMs: 0 };
  /** How long the last step took: the last one beside which no prompt was read, or less. Unknown at first. */
  private stepMs: number | undefined;
  private alongTokens = ALONG_TOKENS.first;

  /** Tokens of prompts that a step has room for. */
  get room(): number {
    return Math.floor(this.alongTokens);
  }

  /** Whether the next step goes out in groups, between which it can be left. */
  isWatched(kind: StepKind): boolean {
    return this.stepMs === undefined ? kind === 'launched' : this.stepMs > UNWATCHED_MS[kind];
  }

  /**
   * What a step took, and with which parts of prompts.
   * @param mostTokens of prompts that a step may take along
   * @param isReading whether prompts are read beside it
   */
  measure(took: number, parts: readonly QueuedPart[], mostTokens: number, isReading: boolean): void {
    const tokens = parts.reduce((sum, { ids }) => sum + ids.length, 0);
    // Fewer tokens than there was room for say only what is too much; what was too slow once is tried again.
    const wish = parts.length === 0 ? 1.01 : ALONG_MS / took;
    if (wish < 1 || parts.length === 0 || tokens > this.alongTokens * 0.7) {
      const wanted = this.alongTokens * Math.min(1.1, Math.max(0.7, wish));
      this.alongTokens = Math.min(mostTokens, Math.max(ALONG_TOKENS.least, wanted));
    }
    if (parts.length > 0) return;
    // Beside prompts it says little about the step itself.
    this.stepMs = isReading ? Math.min(this.stepMs ?? took, took) : took;
    this.lately = { steps: this.lately.steps + 1, stepMs: took };
  }
}
