/** How far a batch is: a line that changes on a terminal, a line now and then elsewhere. */
const REDRAW_MS = 200;
const LINE_MS = 10_000;
/** Over which the rate is taken. */
const RATE_MS = 30_000;

export class Progress {
  answered = 0;
  failed = 0;
  private readonly looks: { time: number; done: number }[] = [];
  private last = Date.now();
  private drawn = false;

  /** @param total requests; Infinity for a queue @param before those that were done before */
  constructor(
    private readonly total: number,
    readonly before: number,
    private readonly silent: boolean,
  ) {
    this.looks.push({ time: Date.now(), done: 0 });
  }

  add(status: number): void {
    if (status < 300) this.answered++;
    else this.failed++;
    this.draw();
  }

  /** A line that stays, above the one that changes. */
  say(text: string): void {
    this.clear();
    process.stderr.write(`${text}\n`);
  }

  clear(): void {
    if (this.drawn && process.stderr.isTTY) process.stderr.write('\r\x1b[K');
    this.drawn = false;
  }

  private draw(): void {
    const { stderr } = process;
    const now = Date.now();
    if (this.silent || now - this.last < (stderr.isTTY ? REDRAW_MS : LINE_MS)) return;
    this.last = now;
    const text = this.text(now);
    // A line that wraps could not be taken back.
    stderr.write(stderr.isTTY ? `\r${text.slice(0, (stderr.columns ?? 80) - 1)}\x1b[K` : `${text}\n`);
    this.drawn = true;
  }

  private text(now: number): string {
    const { looks, total, before, failed } = this;
    const done = this.answered + failed;
    looks.push({ time: now, done });
    while (looks.length > 2 && now - looks[0].time > RATE_MS) looks.shift();
    const rate = (done - looks[0].done) / Math.max(1e-3, (now - looks[0].time) / 1000);
    const share = Number.isFinite(total) ? `${before + done} of ${total} requests` : `${done} requests`;
    const left = Number.isFinite(total) && rate > 0 ? `, ${Math.ceil((total - before - done) / rate)} s left` : '';
    return `${share}${failed > 0 ? `, ${failed} failed` : ''}, ${rate.toFixed(1)} a second${left}`;
  }
}
