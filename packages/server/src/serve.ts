/** The server on a port of this machine, in Node. */
import type { Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { kinds } from '@x/core';
import { checkOptions } from '@x/engine';
import { answerBrokenRequests } from './broken-requests';
import { createServer, type Server } from './create-server';
import { ApiError, ServerError } from './errors';
import type { ServerOptions } from './options';
import { isLoopback } from './security';

export interface ServeOptions extends ServerOptions {
  /** Address to listen on. Default `127.0.0.1`: this machine alone. Others ask for an {@link apiKey}. */
  host?: string;
  /** Default 8080; 0 takes one that is free. */
  port?: number;
  /** Listens on other addresses than loopback without a key: whoever reaches the port can use the models. Default false. */
  allowOpenNetwork?: boolean;
}

export interface RunningServer extends Server {
  /** Such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /**
   * As {@link Server.close}, after `drainMs` (default 0) in which `/ready` says 503 and requests are still taken: balancers
   * look only now and then.
   */
  close(options?: { timeoutMs?: number; drainMs?: number }): Promise<void>;
}

const DEFAULT_PORT = 8080;
/** Connections that hold no request, and headers that come byte by byte. */
const TIMEOUTS = { keepAliveTimeout: 10_000, headersTimeout: 20_000 };

/**
 * Listens, and answers until it is closed.
 * @throws ServerError PORT_IN_USE, CANNOT_LISTEN, INVALID_OPTION for an open address without a key; what {@link createServer} throws
 */
export async function serve({
  host = '127.0.0.1',
  port = DEFAULT_PORT,
  allowOpenNetwork = false,
  ...options
}: ServeOptions): Promise<RunningServer> {
  checkOptions(
    'serve',
    { host, port, allowOpenNetwork },
    {
      host: kinds.kind((value) => typeof value === 'string' && value !== '', 'give an address such as "127.0.0.1"'),
      port: kinds.kind(
        (value) => Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 65_535,
        'give a whole number from 0 to 65535',
      ),
      allowOpenNetwork: kinds.BOOLEAN,
    },
  );
  const isLocal = isLoopback(host);
  if (!isLocal && options.apiKey === undefined && !allowOpenNetwork) {
    throw new ServerError(
      'INVALID_OPTION',
      `serve: on ${host} others reach the server, and there is no key; give apiKey (--api-key), or allowOpenNetwork (--allow-open-network) where that is meant.`,
    );
  }
  // It starts a parser in WebAssembly, and `node:http` as a module brings all of `fetch`: 0.1 s that those who mount the server, or
  // import this package for something else, need not spend.
  const [http, { getRequestListener, RequestError }] = await Promise.all([
    import('node:http'),
    import('@hono/node-server'),
  ]);
  const maxHeaderSize = options.maxHeaderBytes ?? 16_384;
  // Without a key a page that a browser shows must not get in by a name of its own; one with a key does not know it.
  const reached = options.apiKey === undefined ? 'network' : 'any';
  const server = createServer({ ...options, allowedHosts: options.allowedHosts ?? (isLocal ? undefined : reached) });
  const listener = getRequestListener((request, environment) => server.fetch(request, environment), {
    overrideGlobalObjects: false,
    // HTTP/1.0 names no host: probes of balancers.
    hostname: 'localhost',
    errorHandler: (error) =>
      (error instanceof RequestError
        ? new ApiError(400, `This request names no resource of the server (${error.message}).`)
        : new ApiError(500, 'The server failed on this request.')
      ).response(),
  });
  const listening = http.createServer({ maxHeaderSize }, listener);
  Object.assign(listening, TIMEOUTS);
  answerBrokenRequests(listening, maxHeaderSize);
  try {
    await listen(listening, host, port);
  } catch (error) {
    await server.close({ timeoutMs: 0 });
    throw error;
  }
  const actual = (listening.address() as AddressInfo).port;
  let closing: Promise<void> | undefined;
  return {
    fetch: server.fetch,
    get stats() {
      return server.stats;
    },
    ready: server.ready,
    drain: server.drain,
    host,
    port: actual,
    url: `http://${host.includes(':') ? `[${host}]` : host}:${actual}`,
    close(closeOptions) {
      closing ??= shut(listening, server, closeOptions);
      return closing;
    },
  };
}

async function listen(http: HttpServer, host: string, port: number): Promise<void> {
  try {
    await new Promise<void>((resolve, reject) => {
      http.once('error', reject);
      http.listen(port, host, () => {
        http.off('error', reject);
        resolve();
      });
    });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE')
      throw new ServerError(
        'PORT_IN_USE',
        `serve: port ${port} of ${host} is in use; give another one (--port), or 0 for any.`,
        { cause },
      );
    throw new ServerError(
      'CANNOT_LISTEN',
      `serve: cannot listen on ${host}, port ${port}: ${(cause as Error).message}.`,
      { cause },
    );
  }
}

/** Lets balancers know, takes no new connections, lets requests end, and drops what is left. */
async function shut(
  http: HttpServer,
  server: Server,
  { drainMs = 0, ...options }: { timeoutMs?: number; drainMs?: number } = {},
): Promise<void> {
  server.drain();
  if (drainMs > 0) await sleep(drainMs);
  const stopped = new Promise<void>((resolve) => {
    http.close(() => resolve());
  });
  http.closeIdleConnections();
  await server.close(options);
  // The last answers are on their way to their sockets.
  const drop = setTimeout(() => http.closeAllConnections(), 500);
  http.closeIdleConnections();
  await stopped;
  clearTimeout(drop);
}
