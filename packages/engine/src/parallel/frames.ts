/** Messages over a socket: each with its length in front, bounded, as V8 writes values. */
import type { Socket } from 'node:net';
import { deserialize, serialize } from 'node:v8';

/** The largest message: numbers of a batch are some MiB. */
export const MAX_FRAME = 64 * 2 ** 20;
const HEADER = 4;

export function writeFrame(socket: Socket, message: unknown): void {
  const body = serialize(message);
  if (body.length > MAX_FRAME) throw new Error(`internal: a message of ${body.length} bytes`);
  const header = Buffer.allocUnsafe(HEADER);
  header.writeUInt32BE(body.length);
  socket.cork();
  socket.write(header);
  socket.write(body);
  socket.uncork();
}

/** Puts what arrives together again. */
export class FrameReader {
  private parts: Buffer[] = [];
  private size = 0;

  /** @param received called with each message, in order */
  constructor(private readonly received: (message: unknown) => void) {}

  /** @throws Error for a message that is too large or none */
  push(chunk: Buffer): void {
    this.parts.push(chunk);
    this.size += chunk.length;
    for (;;) {
      if (this.size < HEADER) return;
      const length = this.peek();
      if (length > MAX_FRAME)
        throw new Error(`a message of ${length} bytes was announced; at most ${MAX_FRAME} are taken`);
      if (this.size < HEADER + length) return;
      const all = this.parts.length === 1 ? this.parts[0] : Buffer.concat(this.parts);
      const rest = all.subarray(HEADER + length);
      this.parts = rest.length > 0 ? [rest] : [];
      this.size = rest.length;
      // A copy of its own: numbers in it are read as words, whose places are multiples of 4.
      this.received(deserialize(Buffer.from(all.subarray(HEADER, HEADER + length))));
    }
  }

  private peek(): number {
    if (this.parts[0].length < HEADER) this.parts = [Buffer.concat(this.parts)];
    return this.parts[0].readUInt32BE();
  }
}
