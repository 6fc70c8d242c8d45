/** Requests of a batch, in the lines that OpenAI's batch files have. */
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { kinds } from '@x/core';
import { BatchError } from './errors';
import { linesOfFile } from './lines';

const URLS = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings'] as const;

export interface BatchRequest {
  customId: string;
  url: (typeof URLS)[number];
  /** As JSON. */
  body: string;
  /**
   * Of its line in the results: made from the request, so that a result tells which request it is of, also after a file of
   * requests was changed or exchanged.
   */
  id: string;
}

export const ID_PREFIX = 'batch_req_';
const MOST_ID_CHARACTERS = 512;

/**
 * @param where names the request in messages, such as `in.jsonl, line 3`
 * @param models names that requests may have; where there is one, a request need not name it
 * @throws BatchError BAD_REQUEST
 */
export function readRequest(value: unknown, where: string, models: readonly string[]): BatchRequest {
  const wrong = (what: string) => new BatchError('BAD_REQUEST', `${where}: ${what}`);
  if (!kinds.isObject(value))
    throw wrong('this is no object. Give {"custom_id": …, "method": "POST", "url": …, "body": {…}}.');
  const { custom_id: customId, method, url, body } = value;
  if (typeof customId !== 'string' || customId === '' || customId.length > MOST_ID_CHARACTERS)
    throw wrong(`custom_id is ${kinds.showField(customId)}. Give a text of 1 to ${MOST_ID_CHARACTERS} characters.`);
  if (method !== 'POST') throw wrong(`method is ${kinds.showField(method)}. Give "POST".`);
  const known = URLS.find((one) => one === url);
  if (known === undefined)
    throw wrong(`url is ${kinds.showField(url)}. Give ${URLS.join(', ').replace(/, (?=[^,]*$)/, ' or ')}.`);
  if (!kinds.isObject(body)) throw wrong(`body is ${kinds.showField(body)}. Give the object that ${known} takes.`);
  if (body.stream === true) throw wrong('body.stream is true, and a batch has no streams. Leave it out.');
  if (typeof body.model === 'string' ? !models.includes(body.model) : body.model != null || models.length > 1)
    throw wrong(
      `body.model is ${kinds.showField(body.model)}. Give ${models.join(' or ')}, or name a model so: --model NAME=PATH.`,
    );
  try {
    const text = JSON.stringify(body);
    const hash = createHash('sha256')
      .update(JSON.stringify([customId, known]))
      .update(text)
      .digest('hex');
    return { customId, url: known, body: text, id: `${ID_PREFIX}${hash.slice(0, 32)}` };
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new BatchError('BAD_REQUEST', `${where}: body has too many objects and lists within one another.`, { cause });
  }
}

/** The requests of a file in their order; blank lines are left out. @throws BatchError */
export async function* requestsOf(
  path: string,
  models: readonly string[],
  signal?: AbortSignal,
): AsyncGenerator<BatchRequest> {
  for await (const { number, text } of linesOfFile(path, signal)) {
    if (text.trim() === '') continue;
    const where = `${path}, line ${number}`;
    yield readRequest(parse(text, where), where, models);
  }
}

/**
 * Reads all before anything is computed, so that a batch that cannot end well does not begin.
 * @returns ids of the requests by their custom_id @throws BatchError, also for a custom_id that comes twice
 */
export async function checkRequests(
  path: string,
  models: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, string>> {
  const found = await stat(path).catch((cause: Error) => {
    throw new BatchError('FILE_UNUSABLE', `${path} cannot be read: ${cause.message}. Give one that can be read.`, {
      cause,
    });
  });
  if (!found.isFile())
    throw new BatchError('FILE_UNUSABLE', `${path} is no file, and requests are read twice. Give a file.`);
  const seen = new Map<string, string>();
  for await (const { customId, id } of requestsOf(path, models, signal)) {
    if (seen.has(customId))
      throw new BatchError(
        'BAD_REQUEST',
        `${path}: two requests have the custom_id ${kinds.showField(customId)}. Give each its own.`,
      );
    seen.set(customId, id);
  }
  if (seen.size === 0) throw new BatchError('BAD_REQUEST', `${path} holds no request. Give a request on each line.`);
  return seen;
}

function parse(text: string, where: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new BatchError('BAD_REQUEST', `${where} is not JSON. Give one object on each line.`, { cause });
  }
}
