// OpenAI's interface under /v1 of this site, answered by a model in this process.
import { server } from '@x/candle';

export const runtime = 'nodejs';
export const dynamic = 'force-dynamic';

// Once a process: in development the module is read anew with each change.
globalThis.candleServer ??= server.createServer({ models: { model: process.env.MODEL ?? 'model.gguf' }, page: false });
const { fetch } = globalThis.candleServer;

export const GET = (request) => fetch(request);
export const POST = (request) => fetch(request);
