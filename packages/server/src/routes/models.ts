/** `GET /v1/models` and `GET /v1/models/NAME`. */
import { ApiError } from '../errors';
import type { Service } from '../service';

export function listModels(service: Service): Response {
  return Response.json({ object: 'list', data: service.pool.list().map(described) });
}

/** @throws ApiError 404 */
export function oneModel(service: Service, name: string): Response {
  service.pool.check(name);
  const model = service.pool.list().find((one) => one.name === name);
  if (!model) throw new ApiError(404, 'There is no such model.');
  return Response.json(described(model));
}

function described({ name, created }: { name: string; created: number }): object {
  return { id: name, object: 'model', created, owned_by: 'candle' };
}
