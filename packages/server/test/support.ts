/** Servers over the small models of this repository. */
import { fileURLToPath } from 'node:url';
import { createServer, type ServerOptions } from '../src';

export const MODEL = fileURLToPath(new URL('../../../models/tiny-tales/tiny-tales-q8_0.gguf', import.meta.url));
export const TINY = fileURLToPath(new URL('../../../models/tiny/llama/model-f16.gguf', import.meta.url));
/** Decides nothing that a test looks at, and every machine has it. */
export const ON_CPU = { device: 'cpu' } as const;

/** A model that answers at once: its texts mean nothing. */
export const tiny = { tiny: { path: TINY, options: ON_CPU } };

/** A response whose JSON is what the test says. */
// biome-ignore lint/suspicious/noExplicitAny: as said
export type Answer = Omit<Response, 'json'> & { json(): Promise<any> };

export function testServer(options: Partial<ServerOptions> = {}) {
  const server = createServer({ models: { tales: { path: MODEL, options: ON_CPU } }, ...options });
  const ask = (path: string, init: RequestInit = {}): Promise<Answer> =>
    server.fetch(
      new Request(`http://localhost${path}`, { ...init, ...(init.body && { duplex: 'half' }) } as RequestInit),
    );
  const post = (path: string, body: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) =>
    ask(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
      signal,
    });
  return { server, ask, post };
}

/** The objects of a stream of events; `[DONE]` is the text `done`. */
// biome-ignore lint/suspicious/noExplicitAny: what JSON holds is what the test says
export async function events(response: Answer): Promise<any[]> {
  const text = await response.text();
  return text
    .split('\n\n')
    .filter((block) => block !== '' && !block.startsWith(':'))
    .map((block) => block.replace(/^(event: .*\n)?data: /, ''))
    .map((data) => (data === '[DONE]' ? 'done' : JSON.parse(data)));
}

/** Until a condition holds. */
export async function until(condition: () => boolean, ms = 5000): Promise<void> {
  const end = performance.now() + ms;
  while (!condition()) {
    if (performance.now() > end) throw new Error('the condition did not come true in time');
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
