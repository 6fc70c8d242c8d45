// OpenAI's interface as a function of AWS Lambda, behind a function URL or an API gateway. The model is beside the function, in the
// image or on EFS, and stays loaded between calls.
import { server } from '@x/candle';
import { Hono } from 'hono';
import { handle } from 'hono/aws-lambda';

const { fetch, ready } = server.createServer({
  models: { model: process.env.MODEL ?? '/opt/model.gguf' },
  apiKey: process.env.API_KEY,
  // The name that clients see is Lambda's.
  allowedHosts: process.env.HOSTS?.split(','),
  page: false,
  preload: true,
});
// Before the first call, in the time that starting a function has.
await ready;

const app = new Hono();
app.all('*', (context) => fetch(context.req.raw));

export const handler = handle(app);
