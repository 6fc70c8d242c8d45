/** The JSON body of a request, no larger and no deeper than allowed, read before its time is over. */
import { ApiError } from '../errors';

export interface BodyLimits {
  /** Bytes. */
  maxBodyBytes: number;
  /** Milliseconds for all of it to arrive. */
  bodyTimeoutMs: number;
}

/** Objects and lists within one another. Schemas and messages of real programs have some ten. */
const MAX_DEPTH = 64;

/** @throws ApiError 400, 408, 413, 415 */
export async function readJson(request: Request, limits: BodyLimits): Promise<unknown> {
  // What a browser sends across origins without asking first (a form, text/plain) is refused here.
  const type = (request.headers.get('content-type') ?? '').split(';')[0].trim().toLowerCase();
  if (type !== 'application/json' && !type.endsWith('+json'))
    throw new ApiError(415, `The content-type is ${type === '' ? 'missing' : 'another one'}; send application/json.`);
  const encoding = request.headers.get('content-encoding') ?? 'identity';
  if (encoding.trim().toLowerCase() !== 'identity')
    throw new ApiError(415, 'The body has a content-encoding; send it as it is.');
  const bytes = await readBytes(request, limits);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new ApiError(400, 'The body is not UTF-8; send JSON in UTF-8.', { code: 'invalid_json' });
  }
  checkDepth(text);
  try {
    return JSON.parse(text);
  } catch (error) {
    // V8 quotes the text around the place; the position alone says enough.
    const [place = ''] = / at position \d+/.exec((error as Error).message) ?? [];
    throw new ApiError(400, `The body is not valid JSON${place}.`, { code: 'invalid_json' });
  }
}

async function readBytes(request: Request, { maxBodyBytes, bodyTimeoutMs }: BodyLimits): Promise<Uint8Array> {
  const tooLarge = () => new ApiError(413, `The body is larger than ${maxBodyBytes} bytes; send less.`);
  if (Number(request.headers.get('content-length')) > maxBodyBytes) throw tooLarge();
  if (!request.body) throw new ApiError(400, 'The body is empty; give a JSON object.', { code: 'invalid_json' });
  const reader = request.body.getReader();
  const late = timer(bodyTimeoutMs);
  const chunks: Uint8Array[] = [];
  let size = 0;
  try {
    for (;;) {
      const next = await Promise.race([reader.read(), late.promise]);
      if (!next) throw new ApiError(408, `The body did not arrive within ${bodyTimeoutMs} ms.`);
      if (next.done) break;
      size += next.value.byteLength;
      if (size > maxBodyBytes) throw tooLarge();
      chunks.push(next.value);
    }
  } catch (error) {
    void reader.cancel().catch(() => {});
    if (error instanceof ApiError) throw error;
    throw new ApiError(400, 'The body was cut off.', { code: 'invalid_json' });
  } finally {
    late.clear();
  }
  return Buffer.concat(chunks);
}

function timer(ms: number): { promise: Promise<undefined>; clear: () => void } {
  let handle: NodeJS.Timeout;
  const promise = new Promise<undefined>((resolve) => {
    handle = setTimeout(() => resolve(undefined), ms);
  });
  return { promise, clear: () => clearTimeout(handle) };
}

/** Counts brackets outside of strings, before a parser is asked to. */
function checkDepth(text: string): void {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (inString) {
      if (c === 0x5c) i++;
      else if (c === 0x22) inString = false;
    } else if (c === 0x22) inString = true;
    else if (c === 0x7b || c === 0x5b) {
      if (++depth > MAX_DEPTH)
        throw new ApiError(400, `The body has more than ${MAX_DEPTH} objects and lists within one another.`, {
          code: 'invalid_json',
        });
    } else if (c === 0x7d || c === 0x5d) depth--;
  }
}
