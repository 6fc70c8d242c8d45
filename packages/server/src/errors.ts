/** What goes wrong here, told apart by `code`. */
import { CandleError } from '@x/core';

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

/** Codes of errors that the request is to blame for, with what OpenAI calls them. Their messages name no file. */
const OF_THE_REQUEST: Readonly<Record<string, string>> = {
  INVALID_OPTION: 'invalid_value',
  EMPTY_INPUT: 'invalid_value',
  BAD_TOKEN: 'invalid_value',
  CONTEXT_EXCEEDED: 'context_length_exceeded',
  BAD_MESSAGES: 'invalid_value',
  CHAT_REFUSED: 'invalid_value',
  NO_CHAT_TEMPLATE: 'no_chat_template',
  BAD_SCHEMA: 'invalid_schema',
  UNSUPPORTED_KEYWORD: 'invalid_schema',
  UNSATISFIABLE: 'invalid_schema',
  BAD_GRAMMAR: 'invalid_schema',
  BAD_PATTERN: 'invalid_schema',
  TOO_LARGE: 'invalid_schema',
};

/** Any error as one for a client: what is not the request's fault says nothing of its cause. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof CandleError) {
    const code = OF_THE_REQUEST[error.code];
    if (code) return new ApiError(400, error.message, { code });
    if (error.code === 'CACHE_FULL')
      return new ApiError(
        400,
        'The prompt and its answer need more of the key-value cache than the server has; shorten them.',
        {
          code: 'context_length_exceeded',
        },
      );
    if (error.code === 'OUT_OF_MEMORY')
      return new ApiError(503, 'The server is out of memory for now; try again later.', { retryAfter: 5 });
  }
  if (error instanceof CandleError && error.code === 'BAD_CHAT_TEMPLATE')
    return new ApiError(500, "The model's chat template is broken; the server's log has the cause.", {
      code: 'bad_chat_template',
    });
  return new ApiError(500, 'The server failed on this request; its log has the cause under the request id.');
}
