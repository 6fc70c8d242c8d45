/** What goes wrong here, told apart by `code`. */
import { CandleError, CollectiveError } from '@x/core';
import { inWordsOf, paramOf } from './request/params';

export type ServerErrorCode = 'INVALID_OPTION' | 'PORT_IN_USE' | 'CANNOT_LISTEN' | 'CLOSED';

/** A server that cannot be made or started. */
export class ServerError extends CandleError {
  override name = 'ServerError';
  declare readonly code: ServerErrorCode;

  constructor(code: ServerErrorCode, message: string, options?: { cause?: unknown }) {
    super(code, message, options);
  }
}

export interface ApiErrorDetails {
  /** For programs, such as `context_length_exceeded`. */
  code?: string;
  /** The field of the request that is wrong, such as `messages[0].role`. */
  param?: string;
  /** Seconds after which the same request may succeed. */
  retryAfter?: number;
  headers?: Record<string, string>;
  /** For whoever runs the server; no client is told. */
  cause?: unknown;
}

/** What a client is told: a status and the body that OpenAI's clients expect. The message holds nothing of this machine. */
export class ApiError extends CandleError {
  override name = 'ApiError';
  readonly param: string | undefined;
  readonly retryAfter: number | undefined;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    readonly status: number,
    message: string,
    { code = CODES[status] ?? 'server_error', param, retryAfter, headers = {}, cause }: ApiErrorDetails = {},
  ) {
    super(code, message, cause === undefined ? undefined : { cause });
    this.param = param;
    this.retryAfter = retryAfter;
    this.headers = headers;
  }

  /** The body, or what a stream that has begun sends in its place. */
  body(): { error: { message: string; type: string; param: string | null; code: string } } {
    const { message, status, param = null, code } = this;
    return { error: { message, type: typeOf(status), param, code } };
  }

  /** The answer as JSON: `retry-after` in whole seconds, at least 1, and `x-should-retry` true exactly where there is that. */
  response(): Response {
    const { status, retryAfter } = this;
    const headers = new Headers({ 'content-type': 'application/json; charset=utf-8', ...this.headers });
    if (retryAfter !== undefined) headers.set('retry-after', String(Math.max(1, Math.ceil(retryAfter))));
    // OpenAI's clients repeat 408, 409, 429 and 5xx by themselves. Only a full or closing server is worth that.
    if (status >= 400) headers.set('x-should-retry', String(retryAfter !== undefined));
    return new Response(JSON.stringify(this.body()), { status, headers });
  }
}

const CODES: Readonly<Record<number, string>> = {
  400: 'invalid_request',
  401: 'invalid_api_key',
  403: 'forbidden',
  404: 'not_found',
  405: 'method_not_allowed',
  408: 'request_timeout',
  413: 'request_too_large',
  415: 'unsupported_media_type',
  429: 'rate_limit_exceeded',
  431: 'headers_too_large',
  500: 'internal_error',
  501: 'not_implemented',
  503: 'server_unavailable',
  504: 'timeout',
};

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

/** A wrong field of a request. */
export function badField(param: string, what: string): ApiError {
  return new ApiError(400, `${param} ${what}.`, { code: 'invalid_value', param });
}

interface Blame {
  /** What OpenAI calls it. */
  code: string;
  /** The option that is wrong where the error names none; `prompt` is what the model reads. */
  option?: string;
  /** Where the engine's own message is for who runs the server. */
  message?: string;
}

/** Codes of errors that the request is to blame for. Their messages name no file. */
const OF_THE_REQUEST: Readonly<Record<string, Blame>> = {
  INVALID_OPTION: { code: 'invalid_value' },
  EMPTY_INPUT: { code: 'invalid_value', option: 'prompt' },
  BAD_TOKEN: { code: 'invalid_value', option: 'prompt' },
  CONTEXT_EXCEEDED: { code: 'context_length_exceeded', option: 'prompt' },
  CACHE_FULL: {
    code: 'context_length_exceeded',
    option: 'prompt',
    message: 'The prompt and its answer need more of the key-value cache than the server has; shorten them.',
  },
  BAD_MESSAGES: { code: 'invalid_value', option: 'prompt' },
  CHAT_REFUSED: { code: 'invalid_value', option: 'prompt' },
  NO_CHAT_TEMPLATE: {
    code: 'no_chat_template',
    option: 'model',
    message:
      'The model has no chat template, so it takes no chats; send a prompt to /v1/completions, or name another model.',
  },
  BAD_SCHEMA: { code: 'invalid_schema', option: 'schema' },
  UNSUPPORTED_KEYWORD: { code: 'invalid_schema', option: 'schema' },
  UNSATISFIABLE: { code: 'invalid_schema', option: 'schema' },
  BAD_GRAMMAR: { code: 'invalid_schema', option: 'schema' },
  BAD_PATTERN: { code: 'invalid_schema', option: 'schema' },
  TOO_LARGE: { code: 'invalid_schema', option: 'schema' },
};

/**
 * Any error as one for a client: what is the request's fault names its field, and what is not says nothing of its cause.
 * @param route of the request, whose names for the engine's options it has
 */
export function toApiError(error: unknown, route: string): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof CandleError) {
    const blame = OF_THE_REQUEST[error.code];
    if (blame) {
      const option = error.option ?? blame.option;
      const { code, message = inWordsOf(route, error) } = blame;
      return new ApiError(400, message, { code, ...(option !== undefined && { param: paramOf(option, route) }) });
    }
    if (error.code === 'OUT_OF_MEMORY')
      return new ApiError(503, 'The server is out of memory for now; try again later.', { retryAfter: 5 });
  }
  if (error instanceof CollectiveError)
    return new ApiError(503, 'A device that computes the model failed; try again later.', {
      code: 'model_failed',
      retryAfter: 5,
    });
  if (error instanceof CandleError && error.code === 'BAD_CHAT_TEMPLATE')
    return new ApiError(500, "The model's chat template is broken; the server's log has the cause.", {
      code: 'bad_chat_template',
    });
  return new ApiError(500, 'The server failed on this request; its log has the cause under the request id.');
}
