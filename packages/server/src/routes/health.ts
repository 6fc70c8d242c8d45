/** `GET /health`, `/ready` and `/live` for balancers and whatever starts servers again, `GET /metrics` for Prometheus. */
import type { Gauge } from '../metrics';
import type { Service } from '../service';

/** 200 while requests are taken, 503 while the server closes. */
export function health(service: Service): Response {
  const status = service.isClosing ? 'closing' : 'ok';
  return Response.json({ status }, { status: service.isClosing ? 503 : 200 });
}

/** 200 while requests should come: not before the models of `preload` are loaded, nor while the server drains or closes. */
export function ready(service: Service): Response {
  const status = service.readiness;
  return Response.json({ status }, { status: status === 'ready' ? 200 : 503 });
}

/** 200 as long as anything is answered at all, also while the server closes: one that does not answer is to be ended. */
export function live(): Response {
  return Response.json({ status: 'ok' });
}

export function metrics(service: Service): Response {
  const { pool, queue } = service;
  const models = pool.list();
  const loaded = pool.loaded();
  const one = (name: string, help: string, value: number): Gauge => ({ name, help, values: [{ value }] });
  const each = (name: string, help: string, values: Gauge['values']): Gauge => ({ name, help, values });
  const gauges = [
    one('candle_requests_active', 'Requests under way', service.active),
    one('candle_sequences_running', 'Sequences that have a slot', queue.running),
    one('candle_sequences_waiting', 'Sequences that wait for one', queue.waiting),
    one('candle_model_loads', 'Models loaded so far', pool.loads),
    one('candle_model_unloads', 'Models unloaded so far', pool.unloads),
    each(
      'candle_model_loaded',
      'Whether a model is loaded',
      models.map(({ name, state }) => ({ labels: { model: name }, value: state === 'loaded' ? 1 : 0 })),
    ),
    each(
      'candle_cache_positions',
      'Positions of key-value caches by use',
      loaded.flatMap(({ name, model }) =>
        Object.entries(model.cacheStats).map(([use, value]) => ({ labels: { model: name, use }, value })),
      ),
    ),
    each(
      'candle_experts',
      'Experts of models that have them in host memory: which there are, and how often they were there or copied',
      loaded.flatMap(({ name, model }) =>
        Object.entries(model.expertStats ?? {}).map(([what, value]) => ({ labels: { model: name, what }, value })),
      ),
    ),
  ];
  return new Response(service.metrics.text(gauges), {
    headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
  });
}
