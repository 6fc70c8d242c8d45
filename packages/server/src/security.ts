/** Who may ask: host names, origins, keys. The checks come before a body is read. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { ApiError } from './errors';

/** Names under which a server on this machine alone is reached. */
const LOOPBACK = /^(localhost|.+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;
/** A browser sends an address only to what is there: no page can make one point elsewhere. */
const ADDRESS = /^(\d+\.\d+\.\d+\.\d+|\[[\da-f:.]+\])$/;
/** Names that nobody owns on the internet. */
const LOCAL_NAME = /^([^.:]+|.+\.(local|internal))$/;

/** Whether only this machine reaches what listens there. */
export function isLoopback(address: string): boolean {
  return address === 'localhost' || address === '::1' || /^127\.\d+\.\d+\.\d+$/.test(address);
}

/**
 * Names without ports, to which loopback's and addresses are added; `'any'`; `'network'`: names that only a network of one's own has,
 * and addresses; `undefined`: loopback's.
 */
export type AllowedHosts = readonly string[] | 'any' | 'network' | undefined;

/**
 * Refuses names that are not the server's own: a page whose name is made to point here (DNS rebinding) is of the same origin
 * for a browser, and only the name gives it away.
 * @throws ApiError 403
 */
export function checkHost(request: Request, allowed: AllowedHosts): void {
  if (allowed === 'any') return;
  const header = request.headers.get('host');
  const name = (header === null ? new URL(request.url).hostname : header.replace(/:\d*$/, '')).toLowerCase();
  if (LOOPBACK.test(name) || (allowed && ADDRESS.test(name))) return;
  const isOwn = allowed === 'network' ? LOCAL_NAME.test(name) : allowed?.some((one) => one.toLowerCase() === name);
  if (isOwn) return;
  throw new ApiError(403, 'This server does not answer to this host name; name it in allowedHosts (--allowed-host).', {
    code: 'host_not_allowed',
  });
}

/** Origins that pages may ask from besides the server's own: none, some, or `'*'`. */
export type AllowedOrigins = readonly string[] | '*';

/**
 * The headers that let a page of another origin read the answer.
 * @throws ApiError 403 for an origin that is not allowed
 */
export function corsHeaders(request: Request, allowed: AllowedOrigins): Record<string, string> {
  const origin = request.headers.get('origin');
  if (origin === null) return {};
  if (allowed === '*' || allowed.includes(origin)) {
    const headers: Record<string, string> = {
      'access-control-allow-origin': allowed === '*' ? '*' : origin,
      'access-control-expose-headers': 'x-request-id, retry-after',
    };
    if (allowed !== '*') headers.vary = 'origin';
    return headers;
  }
  const host = request.headers.get('host') ?? new URL(request.url).host;
  const isOwn = URL.canParse(origin) && new URL(origin).host === host.toLowerCase();
  if (isOwn) return {};
  throw new ApiError(403, 'This server does not answer to pages of this origin; name it in cors (--cors).', {
    code: 'origin_not_allowed',
  });
}

/** The answer to a browser that asks what it may send. */
export function preflight(headers: Record<string, string>): Response {
  const allowed = {
    'access-control-allow-methods': 'GET, POST, OPTIONS',
    'access-control-allow-headers': 'authorization, content-type, x-request-id, *',
    'access-control-max-age': '600',
  };
  return new Response(null, {
    status: 204,
    headers: headers['access-control-allow-origin'] ? { ...headers, ...allowed } : {},
  });
}

export class Keys {
  private readonly digests: readonly Buffer[];

  constructor(keys: readonly string[]) {
    this.digests = keys.map(digest);
  }

  /**
   * Which key a request has. Every key is compared, in a time that depends on neither.
   * @returns its index; -1 where the server asks for none @throws ApiError 401
   */
  check(request: Request): number {
    if (this.digests.length === 0) return -1;
    const authorization = request.headers.get('authorization') ?? '';
    // No pattern for what may have spaces in it and around it: it would take the square of their number.
    const bearer = /^bearer /i.test(authorization) ? authorization.slice('bearer '.length).trim() : '';
    const given = bearer || request.headers.get('x-api-key');
    const headers = { 'www-authenticate': 'Bearer' };
    if (!given)
      throw new ApiError(401, 'This server asks for a key; send it as "Authorization: Bearer KEY".', { headers });
    const own = digest(given);
    let found = -1;
    for (const [i, one] of this.digests.entries()) if (timingSafeEqual(one, own)) found = i;
    if (found < 0) throw new ApiError(401, 'The key is not valid here.', { headers });
    return found;
  }
}

/** Of equal length whatever the key's is. */
function digest(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

/** Bytes of names and values. @throws ApiError 431 */
export function checkHeaders(request: Request, maxBytes: number): void {
  let bytes = 0;
  for (const [name, value] of request.headers) bytes += name.length + value.length + 4;
  if (bytes > maxBytes) throw new ApiError(431, `The headers are larger than ${maxBytes} bytes; send less.`);
}
