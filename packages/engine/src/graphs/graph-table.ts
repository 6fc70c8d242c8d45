/** Captured graphs by keys, as many as are kept: the one used longest ago goes. */
export class GraphTable<T> {
  /** The one used last at the end; null after the first use, which is not worth a capture. */
  private readonly graphs = new Map<string, T | null>();

  /** @param drop gives a graph back */
  constructor(
    private readonly most: number,
    private readonly drop: (key: string) => void,
  ) {}

  /** The graph of a key; undefined at the first use; null: it is to be captured now. */
  use(key: string): T | null | undefined {
    const known = this.graphs.get(key);
    this.graphs.delete(key);
    this.graphs.set(key, known ?? null);
    return known;
  }

  /** A graph that was captured, without it counting as a use. */
  find(key: string): T | undefined {
    return this.graphs.get(key) ?? undefined;
  }

  add(key: string, graph: T): void {
    this.graphs.delete(key);
    this.graphs.set(key, graph);
    for (const [oldest, captured] of this.graphs) {
      if (this.graphs.size <= this.most) return;
      this.graphs.delete(oldest);
      if (captured) this.drop(oldest);
    }
  }

  /** Gives all graphs back, whose memory is another one now. What they were for is captured when it is next used. */
  renew(): void {
    for (const [key, captured] of this.graphs) {
      if (captured) this.drop(key);
      this.graphs.set(key, null);
    }
  }

  /** Gives all graphs back. */
  clear(): void {
    this.renew();
    this.graphs.clear();
  }

  /** Gives those graphs back that are of no use any more. */
  forget(isOver: (graph: T) => boolean): void {
    for (const [key, captured] of this.graphs) {
      if (!captured || !isOver(captured)) continue;
      this.graphs.delete(key);
      this.drop(key);
    }
  }
}
