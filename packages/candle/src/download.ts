/** Downloads of models from the hub by commands, and what is shown of them. */
import { type PulledModel, type PullOptions, type PullProgress, pull } from '@x/hub';
import { formatBytes } from './output';

export interface DownloadOptions {
  /** Nothing is shown then. */
  json?: boolean;
  signal?: AbortSignal;
}

/** Least time in ms between two looks on a terminal, and between two lines elsewhere. */
const REDRAW_MS = 100;
const LINE_MS = 10_000;

/** Pulls a model and shows how far it is: one line that changes on a terminal, a line now and then elsewhere. */
export async function download(
  name: string,
  { json, ...options }: DownloadOptions & Pick<PullOptions, 'update' | 'connections'>,
): Promise<PulledModel> {
  if (json) return pull(name, options);
  const stream = process.stderr;
  const shown = new ProgressText(name);
  let last = stream.isTTY ? 0 : Date.now();
  let drawn = false;
  const onProgress = (progress: PullProgress) => {
    const now = Date.now();
    if (now - last < (stream.isTTY ? REDRAW_MS : LINE_MS)) return;
    last = now;
    drawn = true;
    const text = shown.at(progress, now);
    // A line that wraps could not be taken back.
    stream.write(stream.isTTY ? `\r${text.slice(0, (stream.columns ?? 80) - 1)}\x1b[K` : `${text}\n`);
  };
  try {
    return await pull(name, { ...options, onProgress });
  } finally {
    if (drawn && stream.isTTY) stream.write('\r\x1b[K');
  }
}

/** What there is to say of a download, with its rate over the last seconds. */
export class ProgressText {
  /** Times and bytes of the last looks, the oldest first. */
  readonly #looks: { time: number; bytes: number }[] = [];

  constructor(readonly name: string) {}

  at({ phase, file, bytes, totalBytes }: PullProgress, time: number): string {
    if (phase === 'waiting') return `${this.name}: waiting for another process that downloads ${file}`;
    if (phase === 'verifying' && bytes < totalBytes) return `${this.name}: checking what is here of ${file}`;
    const looks = this.#looks;
    // A file that begins again has fewer bytes than before.
    if (looks.length > 0 && bytes < looks[looks.length - 1].bytes) looks.length = 0;
    looks.push({ time, bytes });
    while (looks.length > 2 && time - looks[0].time > RATE_MS) looks.shift();
    const percent = totalBytes === 0 ? 100 : Math.floor((100 * bytes) / totalBytes);
    const text = `${this.name}: ${formatBytes(bytes)} of ${formatBytes(totalBytes)}, ${percent} %`;
    const rate = ((bytes - looks[0].bytes) * 1000) / (time - looks[0].time);
    if (!(rate > 0) || !Number.isFinite(rate)) return text;
    return `${text}, ${formatBytes(Math.round(rate))}/s, ${formatDuration((totalBytes - bytes) / rate)} left`;
  }
}

const RATE_MS = 5000;

/** 45 s, 3:07 min, 2:05 h. */
function formatDuration(seconds: number): string {
  const whole = Math.ceil(seconds);
  if (whole < 60) return `${whole} s`;
  const two = (value: number) => String(value).padStart(2, '0');
  if (whole < 3600) return `${Math.floor(whole / 60)}:${two(whole % 60)} min`;
  return `${Math.floor(whole / 3600)}:${two(Math.floor((whole % 3600) / 60))} h`;
}
