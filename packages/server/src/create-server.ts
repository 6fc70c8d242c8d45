/** The server as a function from requests to responses, for whatever speaks HTTP: Node, Bun, Deno, Express, Next. */
import { Hono, type MiddlewareHandler } from 'hono';
import { ApiError, toApiError } from './errors';
import type { Job } from './job';
import { resolveOptions, type ServerOptions } from './options';
import { pageFile } from './page';
import { chatCompletions } from './routes/chat';
import { completions } from './routes/completions';
import { embeddings } from './routes/embeddings';
import { health, live, metrics, ready } from './routes/health';
import { listModels, oneModel } from './routes/models';
import { responses } from './routes/responses';
import { detokenize, tokenize } from './routes/tokenize';
import { checkHeaders, checkHost, corsHeaders, Keys, preflight } from './security';
import { closed, Service } from './service';

/** What a host may know of who asks; `serve` gives it. */
export interface RequestEnvironment {
  incoming?: { socket?: { remoteAddress?: string } };
}

export interface ServerStats {
  /** Requests under way. */
  requests: number;
  /** Sequences that have a slot. */
  running: number;
  /** Sequences that wait for one. */
  waiting: number;
  models: { name: string; state: 'unloaded' | 'loading' | 'loaded' }[];
}

export interface Server {
  /** Answers a request. It never rejects: what goes wrong is a response. It needs no `this`. */
  readonly fetch: (request: Request, environment?: RequestEnvironment) => Promise<Response>;
  readonly stats: ServerStats;
  /** Settles when the models of `preload` are loaded, at once without it; rejects with why one could not be loaded. */
  readonly ready: Promise<void>;
  /** `/ready` says 503 from here on, and answers close their connections, so that balancers send requests elsewhere. */
  drain(): void;
  /**
   * Refuses new requests with 503, waits for those under way, ends the rest after `timeoutMs` (default 30,000), and unloads
   * the models that the server has loaded. Repeated calls wait for the same end.
   */
  close(options?: { timeoutMs?: number }): Promise<void>;
}

type App = { Variables: { job: Job }; Bindings: RequestEnvironment | undefined };
type Handler = (service: Service, job: Job, name: string) => Response | Promise<Response>;

const GET: Readonly<Record<string, Handler>> = {
  '/health': health,
  '/ready': ready,
  '/live': live,
  '/metrics': metrics,
  '/v1/models': listModels,
  // Names may hold slashes.
  '/v1/models/:name{.+}': (service, _, name) => oneModel(service, name),
};
const POST: Readonly<Record<string, Handler>> = {
  '/v1/chat/completions': chatCompletions,
  '/v1/completions': completions,
  '/v1/embeddings': embeddings,
  '/v1/responses': responses,
  '/tokenize': tokenize,
  '/detokenize': detokenize,
};
/** Answered without a key, and while the server closes. */
const OPEN = new Set(['/health', '/ready', '/live']);

/**
 * An OpenAI-compatible server over models in this process.
 * @throws TransformersError INVALID_OPTION, ServerError INVALID_OPTION, FileFormatError for paths that do not exist, HubError INVALID_NAME
 */
export function createServer(options: ServerOptions): Server {
  const resolved = resolveOptions(options);
  const service = new Service(resolved);
  const keys = new Keys(resolved.keys);
  const app = new Hono<App>();

  /** Begins the job, and ends it with the response unless a stream goes on. */
  const frame: MiddlewareHandler<App> = async (c, next) => {
    const request = c.req.raw;
    const job = service.begin(request, c.env?.incoming?.socket?.remoteAddress ?? '');
    c.set('job', job);
    await next();
    job.status = c.res.status;
    c.header('x-request-id', job.id);
    c.header('x-content-type-options', 'nosniff');
    if (service.isDraining) c.header('connection', 'close');
    if (!job.streams) job.end();
  };

  const guard =
    (route: string): MiddlewareHandler<App> =>
    async (c, next) => {
      const job = c.get('job');
      const request = c.req.raw;
      job.route = route;
      checkHost(request, resolved.allowedHosts);
      const cors = corsHeaders(request, resolved.cors);
      if (request.method === 'OPTIONS') return preflight(cors);
      try {
        checkHeaders(request, resolved.maxHeaderBytes);
        if (!OPEN.has(route)) {
          const key = keys.check(request);
          job.client = resolved.clientOf?.(request) ?? `${job.client} ${key}`;
          if (service.isClosing) throw closed();
        }
        await next();
      } catch (error) {
        c.res = fail(error, job);
      }
      for (const [name, value] of Object.entries(cors)) c.header(name, value);
    };

  const fail = (error: unknown, job: Job): Response => {
    const told = toApiError(job.signal.aborted ? job.signal.reason : error, job.route);
    if (told.status === 500) job.error = error;
    return told.response();
  };

  app.use(frame);
  app.onError((error, c) => fail(error, c.get('job')));
  for (const [method, routes] of Object.entries({ GET, POST })) {
    for (const [path, handler] of Object.entries(routes)) {
      app.on([method, 'OPTIONS'], path, guard(path), (c) => handler(service, c.get('job'), c.req.param('name') ?? ''));
      app.all(path, () => {
        throw new ApiError(405, `This route takes ${method} requests.`, { headers: { allow: method } });
      });
    }
  }
  if (resolved.page) {
    app.get('*', async (c, next) => {
      const file = pageFile(c.req.path);
      if (!file) return next();
      checkHost(c.req.raw, resolved.allowedHosts);
      c.get('job').route = 'page';
      return file();
    });
  }
  app.notFound(() => new ApiError(404, 'There is no such route; GET /v1/models is one.').response());

  return {
    fetch: async (request, environment) => app.fetch(request, environment),
    get stats() {
      const { queue, pool, active } = service;
      const models = pool.list().map(({ name, state }) => ({ name, state }));
      return { requests: active, running: queue.running, waiting: queue.waiting, models };
    },
    ready: service.ready,
    drain: () => service.drain(),
    close: ({ timeoutMs = 30_000 } = {}) => service.close(timeoutMs),
  };
}
