// Clients that others wrote, with answers that a test has written: text, reasoning, calls, several calls, what breaks off.
import { fileURLToPath } from 'node:url';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { type AIMessage, HumanMessage } from '@langchain/core/messages';
import { tool as langchainTool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI, { APIError, BadRequestError } from 'openai';
import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createServer, type Server } from '../src';
import { callPieces, type Script, type ScriptedModel, scriptedModel } from './scripted';

const TOKENIZER = fileURLToPath(new URL('../../../models/tiny/llama/tokenizer.json', import.meta.url));
let scripted: ScriptedModel;
let server: Server;
let scripts: Script[] = [];
let openai: OpenAI;
beforeAll(async () => {
  scripted = await scriptedModel(TOKENIZER, () => scripts.shift()!);
  server = createServer({ models: { scripted: scripted.model }, apiKey: 'key' });
  openai = new OpenAI({
    apiKey: 'key',
    baseURL: 'http://localhost/v1',
    maxRetries: 0,
    fetch: (url, init) => server.fetch(new Request(url as string, init)),
  });
});
afterAll(() => server.close());
beforeEach(() => {
  scripted.asked.length = 0;
  scripts = [];
});
const model = 'scripted';
const hello = [{ role: 'user' as const, content: 'Hello' }];
const text: Script = { pieces: ['Good ', 'morning', '!'].map((part) => ({ type: 'text', text: part })) };
const thinking: Script = {
  pieces: [{ type: 'reasoning', text: 'Be ' }, { type: 'reasoning', text: 'brief.' }, ...text.pieces],
};
const weather: Script = {
  pieces: [
    { type: 'text', text: 'Let me look.' },
    ...callPieces(0, 'call_1', 'weather', { city: 'Oslo' }),
    ...callPieces(1, 'call_2', 'weather', { city: 'Rome', days: 2 }),
  ],
};
const City = z.object({ city: z.string(), days: z.number().optional() });
const TOOLS = [
  {
    type: 'function' as const,
    function: {
      name: 'weather',
      description: 'The weather',
      parameters: { type: 'object', properties: { city: { type: 'string' } } },
    },
  },
];

describe('openai', () => {
  test('a chat, whole', async () => {
    scripts = [thinking];
    const answer = await openai.chat.completions.create({
      model,
      messages: [{ role: 'developer', content: 'Be kind.' }, ...hello],
      max_completion_tokens: 5,
    });
    expect(answer.choices[0]).toMatchObject({
      finish_reason: 'stop',
      message: { role: 'assistant', content: 'Good morning!', reasoning_content: 'Be brief.' },
    });
    expect(answer.usage).toMatchObject({
      prompt_tokens: 3,
      completion_tokens: 5,
      total_tokens: 8,
      completion_tokens_details: { reasoning_tokens: 2 },
    });
    expect(scripted.asked[0].messages.map(({ role }) => role)).toEqual(['developer', 'user']);
    expect(scripted.asked[0].options).toMatchObject({ maxTokens: 5, temperature: 1 });
  });

  test('a chat, in a stream', async () => {
    scripts = [thinking];
    const stream = openai.chat.completions.stream({ model, messages: hello, stream_options: { include_usage: true } });
    const contents: string[] = [];
    stream.on('content', (delta) => contents.push(delta));
    const answer = await stream.finalChatCompletion();
    expect(contents).toEqual(['Good ', 'morning', '!']);
    expect(answer.choices[0]).toMatchObject({ finish_reason: 'stop', message: { content: 'Good morning!' } });
    expect((await stream.totalUsage()).completion_tokens).toBe(5);
  });

  test('calls of tools, whole and in a stream', async () => {
    scripts = [weather, weather];
    const { choices } = await openai.chat.completions.create({
      model,
      messages: hello,
      tools: TOOLS,
      tool_choice: 'required',
    });
    expect(choices[0]).toMatchObject({
      finish_reason: 'tool_calls',
      message: {
        content: 'Let me look.',
        tool_calls: [
          { id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Oslo"}' } },
          { id: 'call_2', type: 'function', function: { name: 'weather', arguments: '{"city":"Rome","days":2}' } },
        ],
      },
    });
    expect(scripted.asked[0].options).toMatchObject({
      toolChoice: 'required',
      tools: [{ name: 'weather', description: 'The weather' }],
    });
    const stream = openai.chat.completions.stream({
      model,
      messages: hello,
      tools: [zodFunction({ name: 'weather', parameters: z.object({ city: z.string() }) })],
    });
    const done: unknown[] = [];
    stream.on('tool_calls.function.arguments.done', ({ index, parsed_arguments }) =>
      done.push([index, parsed_arguments]),
    );
    const final = await stream.finalChatCompletion();
    expect(final.choices[0].message.tool_calls?.map((call) => call.function.parsed_arguments)).toEqual([
      { city: 'Oslo' },
      { city: 'Rome' },
    ]);
    expect(done).toEqual([
      [0, { city: 'Oslo' }],
      [1, { city: 'Rome' }],
    ]);
  });

  test('some of the tools, by name', async () => {
    scripts = [text, text];
    const clock = { type: 'function' as const, function: { ...TOOLS[0].function, name: 'clock' } };
    const named = { type: 'function' as const, function: { name: 'clock' } };
    const ask = (tools: (typeof named)[], mode: 'auto' | 'required' = 'required') =>
      openai.chat.completions.create({
        model,
        messages: hello,
        tools: [...TOOLS, clock],
        tool_choice: { type: 'allowed_tools', allowed_tools: { mode, tools } },
      });
    await ask([named]);
    await openai.responses.create({
      model,
      input: 'Hello',
      tools: [...TOOLS, clock].map((tool) => ({ type: 'function' as const, strict: false, ...tool.function })),
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'clock' }] },
    });
    expect(scripted.asked.map(({ options }) => [options.toolChoice, options.tools!.map(({ name }) => name)])).toEqual([
      ['required', ['clock']],
      ['auto', ['clock']],
    ]);
    await expect(ask([])).rejects.toMatchObject({ status: 400, message: expect.stringContaining('is empty') });
    await expect(ask([{ ...named, function: { name: 'cloak' } }])).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('none of the tools'),
    });
  });

  test('a history with a refusal, and with numbers as the model wrote them', async () => {
    const written = '{"id": 12345678901234567890}';
    const id = Number('12345678901234567890');
    const call: Script = {
      pieces: [
        { type: 'tool-call-start', index: 0, id: 'call_1', name: 'weather' },
        { type: 'tool-call-arguments', index: 0, text: written },
        { type: 'tool-call-end', index: 0, call: { id: 'call_1', name: 'weather', arguments: { id } } },
      ],
    };
    scripts = [call, call];
    const refused = { role: 'assistant' as const, content: null, refusal: 'No.' };
    const { choices } = await openai.chat.completions.create({ model, messages: [...hello, refused, ...hello] });
    expect(scripted.asked[0].messages[1]).toEqual({ role: 'assistant', content: 'No.' });
    expect(choices[0].message.tool_calls).toMatchObject([{ function: { arguments: written } }]);
    const { output } = await openai.responses.create({ model, input: 'Hello' });
    expect(output).toMatchObject([{ type: 'function_call', arguments: written }]);
  });

  test('one call where calls are not to be parallel', async () => {
    scripts = [weather, weather];
    const { choices } = await openai.chat.completions.create({
      model,
      messages: hello,
      tools: TOOLS,
      parallel_tool_calls: false,
    });
    expect([choices[0].finish_reason, choices[0].message.tool_calls?.length]).toEqual(['tool_calls', 1]);
    const stream = openai.chat.completions.stream({ model, messages: hello, tools: TOOLS, parallel_tool_calls: false });
    const final = await stream.finalChatCompletion();
    expect([final.choices[0].finish_reason, final.choices[0].message.tool_calls?.length]).toEqual(['tool_calls', 1]);
  });

  test('a loop that runs tools and sends their answers back', async () => {
    scripts = [weather, text];
    const runner = openai.chat.completions.runTools({
      model,
      messages: hello,
      stream: true,
      tools: [
        {
          type: 'function',
          function: {
            name: 'weather',
            parse: JSON.parse,
            function: ({ city }: { city: string }) => `${city}: rain`,
            parameters: { type: 'object' },
            description: '',
          },
        },
      ],
    });
    expect(await runner.finalContent()).toBe('Good morning!');
    expect(scripted.asked[1].messages).toMatchObject([
      { role: 'user' },
      {
        role: 'assistant',
        toolCalls: [{ id: 'call_1', name: 'weather', arguments: { city: 'Oslo' } }, { id: 'call_2' }],
      },
      { role: 'tool', toolCallId: 'call_1', content: 'Oslo: rain' },
      { role: 'tool', toolCallId: 'call_2', content: 'Rome: rain' },
    ]);
  });

  test('an answer that is parsed by a schema', async () => {
    scripts = [{ pieces: [{ type: 'text', text: '{"city":"Bergen"}' }] }];
    const format = zodResponseFormat(z.object({ city: z.string() }), 'city');
    const answer = await openai.chat.completions.parse({ model, messages: hello, response_format: format });
    expect(answer.choices[0].message.parsed).toEqual({ city: 'Bergen' });
    expect(scripted.asked[0].options).toMatchObject({
      schema: { type: 'object', properties: { city: { type: 'string' } } },
    });
  });

  test('several choices', async () => {
    scripts = [text, weather, text, weather];
    const whole = await openai.chat.completions.create({ model, messages: hello, n: 2, seed: 5 });
    expect(whole.choices.map(({ finish_reason }) => finish_reason)).toEqual(['stop', 'tool_calls']);
    expect(scripted.asked.map(({ options }) => options.seed)).toEqual([5, 6]);
    const streamed = await openai.chat.completions.stream({ model, messages: hello, n: 2 }).finalChatCompletion();
    expect(streamed.choices.map(({ finish_reason }) => finish_reason)).toEqual(['stop', 'tool_calls']);
  });

  test('failures before and within a stream', async () => {
    scripts = [
      { ...text, error: new Error('/secret/path') },
      { ...text, error: new Error('/secret/path') },
    ];
    await expect(openai.chat.completions.create({ model, messages: hello })).rejects.toMatchObject({
      status: 500,
      code: 'internal_error',
      requestID: expect.stringMatching(/^req_/),
    });
    const stream = await openai.chat.completions.create({ model, messages: hello, stream: true });
    const read = async () => {
      for await (const _ of stream);
    };
    const error = await read().catch((error) => error);
    expect(error).toBeInstanceOf(APIError);
    expect(error.message).not.toMatch('secret');
    await expect(openai.chat.completions.create({ model, messages: [] })).rejects.toBeInstanceOf(BadRequestError);
    await expect(openai.withOptions({ apiKey: 'no' }).models.list()).rejects.toMatchObject({ status: 401 });
    await expect(openai.chat.completions.create({ model: 'no', messages: hello })).rejects.toMatchObject({
      status: 404,
      code: 'model_not_found',
    });
  });

  test('an answer that is cut, and one that is left', async () => {
    scripts = [
      { ...text, finishReason: 'length' },
      { pieces: Array.from({ length: 1000 }, () => ({ type: 'text', text: 'x' })) },
    ];
    expect((await openai.chat.completions.create({ model, messages: hello })).choices[0].finish_reason).toBe('length');
    const stream = await openai.chat.completions.create({ model, messages: hello, stream: true });
    for await (const _ of stream) break;
    await expect.poll(() => server.stats.requests).toBe(0);
  });

  test('responses, whole and in a stream', async () => {
    scripts = [thinking, thinking];
    const whole = await openai.responses.create({ model, input: 'Hello', instructions: 'Be kind.' });
    expect(whole.output_text).toBe('Good morning!');
    expect(whole).toMatchObject({
      status: 'completed',
      output: [
        { type: 'reasoning', content: [{ text: 'Be brief.' }] },
        { type: 'message', status: 'completed' },
      ],
    });
    expect(scripted.asked[0].messages).toEqual([
      { role: 'system', content: 'Be kind.' },
      { role: 'user', content: 'Hello' },
    ]);
    const types: string[] = [];
    const stream = openai.responses.stream({ model, input: 'Hello' });
    stream.on('event', ({ type }) => types.push(type));
    const final = await stream.finalResponse();
    expect([final.status, final.output_text, final.usage?.output_tokens]).toEqual(['completed', 'Good morning!', 5]);
    expect(final.usage?.output_tokens_details.reasoning_tokens).toBe(2);
    expect(types.filter((type) => !type.endsWith('.delta'))).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.reasoning_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.completed',
    ]);
  });

  test('responses with calls, their outputs, and a format', async () => {
    scripts = [
      weather,
      { pieces: [{ type: 'text', text: '{"city":"Bergen"}' }] },
      { ...text, finishReason: 'length' },
      { ...text, error: new Error('x') },
    ];
    const tools = [{ type: 'function' as const, name: 'weather', parameters: { type: 'object' }, strict: false }];
    const first = await openai.responses.stream({ model, input: 'Hello', tools }).finalResponse();
    expect(first.output.slice(1)).toMatchObject([
      { type: 'function_call', call_id: 'call_1', name: 'weather', arguments: '{"city":"Oslo"}', status: 'completed' },
      { type: 'function_call', call_id: 'call_2', arguments: '{"city":"Rome","days":2}' },
    ]);
    const outputs = ['call_1', 'call_2'].map((call_id) => ({
      type: 'function_call_output' as const,
      call_id,
      output: 'rain',
    }));
    const input = [...hello, ...(first.output as OpenAI.Responses.ResponseInputItem[]), ...outputs];
    const parsed = await openai.responses.parse({
      model,
      input,
      text: { format: zodTextFormat(z.object({ city: z.string() }), 'city') },
    });
    expect(parsed.output_parsed).toEqual({ city: 'Bergen' });
    expect(scripted.asked[1].messages).toMatchObject([
      { role: 'user' },
      { role: 'assistant', content: 'Let me look.', toolCalls: [{ id: 'call_1' }, { id: 'call_2' }] },
      { role: 'tool', toolCallId: 'call_1' },
      { role: 'tool', toolCallId: 'call_2' },
    ]);
    const thought = (part: string) => ({
      type: 'reasoning' as const,
      id: `rs_${part}`,
      summary: [],
      content: [{ type: 'reasoning_text' as const, text: part }],
    });
    const said = (content: string) => ({ role: 'assistant' as const, content });
    const cut = await openai.responses.create({
      model,
      input: [...hello, thought('One.'), said('Good'), thought('Two.'), said('morning'), ...hello],
      max_output_tokens: 3,
    });
    expect(scripted.asked[2].messages[1]).toEqual({
      role: 'assistant',
      content: 'Good\n\nmorning',
      reasoning: 'One.\n\nTwo.',
    });
    expect(cut).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } });
    const failed = await openai.responses.stream({ model, input: 'Hello' }).finalResponse();
    expect(failed).toMatchObject({ status: 'failed', error: { code: 'internal_error' } });
    await expect(openai.responses.create({ model, input: 'a', previous_response_id: 'resp_1' })).rejects.toMatchObject({
      status: 400,
      param: 'previous_response_id',
    });
  });

  test('a call that breaks off is the same part of a call in a stream and whole, and is taken back', async () => {
    const broken: Script = {
      pieces: [
        { type: 'text', text: 'Let me look.' },
        { type: 'tool-call-start', index: 0, id: 'call_1', name: 'weather' },
        { type: 'tool-call-arguments', index: 0, text: '{"ci' },
        { type: 'text', text: '<tool_call>{"name": "weather", "arguments": {"ci', ofCall: 0 },
      ],
      finishReason: 'length',
    };
    scripts = [broken, broken, broken, { pieces: [{ type: 'text', text: 'Sorry.' }] }];
    const expected = {
      finish_reason: 'length',
      message: {
        content: 'Let me look.',
        tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"ci' } }],
      },
    };
    const whole = await openai.chat.completions.create({ model, messages: hello, tools: TOOLS });
    expect(whole.choices[0]).toMatchObject(expected);
    const stream = await openai.chat.completions.create({ model, messages: hello, tools: TOOLS, stream: true });
    const told = { content: '', arguments: '', finish: '' };
    for await (const { choices } of stream) {
      const [{ delta, finish_reason }] = choices;
      told.content += delta.content ?? '';
      told.arguments += delta.tool_calls?.[0].function?.arguments ?? '';
      told.finish += finish_reason ?? '';
    }
    expect(told).toEqual({ content: 'Let me look.', arguments: '{"ci', finish: 'length' });

    const tools = [{ type: 'function', name: 'weather', parameters: {}, strict: false } as const];
    const indices: number[] = [];
    const response = await openai.responses
      .stream({ model, input: 'Hello', tools })
      .on('response.output_item.added', ({ output_index }) => indices.push(output_index))
      .finalResponse();
    expect(response.output.map((item) => [item.type, 'status' in item && item.status])).toEqual([
      ['message', 'completed'],
      ['function_call', 'incomplete'],
    ]);
    expect(indices).toEqual([0, 1]);

    const { message } = whole.choices[0];
    const result = { role: 'tool', tool_call_id: 'call_1', content: 'no JSON' } as const;
    await openai.chat.completions.create({ model, messages: [...hello, message, result], tools: TOOLS });
    expect(scripted.asked.at(-1)!.messages).toMatchObject([
      {},
      { toolCalls: [{ id: 'call_1', name: 'weather', arguments: { invalid_json: '{"ci' } }] },
      { role: 'tool' },
    ]);
  });

  test('what is said before a call is whole', async () => {
    scripts = [
      {
        pieces: [
          { type: 'reasoning', text: 'Hm.' },
          { type: 'text', text: 'Let me look.' },
          { type: 'tool-call-start', index: 0, id: 'call_1', name: 'weather' },
          { type: 'tool-call-arguments', index: 0, text: '{}' },
          { type: 'tool-call-end', index: 0, call: { id: 'call_1', name: 'weather', arguments: {} } },
        ],
      },
    ];
    const { output } = await openai.responses.create({ model, input: 'Hello' });
    expect(output.map((item) => [item.type, 'status' in item && item.status])).toEqual([
      ['reasoning', 'completed'],
      ['message', 'completed'],
      ['function_call', 'completed'],
    ]);
  });
});

describe('the AI SDK', () => {
  const provider = () =>
    createOpenAICompatible({
      name: 'candle',
      apiKey: 'key',
      baseURL: 'http://localhost/v1',
      includeUsage: true,
      supportsStructuredOutputs: true,
      fetch: ((url: string, init: RequestInit) => server.fetch(new Request(url, init))) as typeof fetch,
    });
  const weatherTool = tool({
    description: 'The weather',
    inputSchema: City,
    execute: async ({ city }) => `${city}: rain`,
  });

  test('text, whole and in a stream', async () => {
    scripts = [thinking, thinking];
    const whole = await generateText({ model: provider()(model), prompt: 'Hello', maxRetries: 0 });
    expect([whole.text, whole.reasoningText, whole.finishReason, whole.usage.outputTokens]).toEqual([
      'Good morning!',
      'Be brief.',
      'stop',
      5,
    ]);
    const stream = streamText({ model: provider()(model), prompt: 'Hello', maxRetries: 0 });
    const parts: string[] = [];
    for await (const part of stream.textStream) parts.push(part);
    expect(parts).toEqual(['Good ', 'morning', '!']);
    expect([await stream.reasoningText, await stream.finishReason, (await stream.usage).outputTokens]).toEqual([
      'Be brief.',
      'stop',
      5,
    ]);
  });

  test.each(['whole', 'in a stream'])('tools, %s', async (way) => {
    scripts = [weather, text];
    const settings = {
      model: provider()(model),
      prompt: 'Hello',
      tools: { weather: weatherTool },
      stopWhen: stepCountIs(3),
      maxRetries: 0,
    };
    const result = way === 'whole' ? await generateText(settings) : streamText(settings);
    if ('consumeStream' in result) await result.consumeStream();
    const steps = await result.steps;
    expect(steps.map((step) => step.toolCalls.map(({ input }) => input))).toEqual([
      [{ city: 'Oslo' }, { city: 'Rome', days: 2 }],
      [],
    ]);
    expect(steps[0].toolResults.map(({ output }) => output)).toEqual(['Oslo: rain', 'Rome: rain']);
    expect(await result.text).toBe('Good morning!');
    expect(scripted.asked[1].messages.at(-1)).toMatchObject({
      role: 'tool',
      toolCallId: 'call_2',
      content: 'Rome: rain',
    });
  });

  test('objects by a schema', async () => {
    scripts = [{ pieces: [{ type: 'text', text: '{"city":"Bergen"}' }] }];
    const { object } = await generateObject({
      model: provider()(model),
      schema: z.object({ city: z.string() }),
      prompt: 'Hello',
      maxRetries: 0,
    });
    expect(object).toEqual({ city: 'Bergen' });
    expect(scripted.asked[0].options).toMatchObject({ schema: { properties: { city: { type: 'string' } } } });
  });

  test('failures', async () => {
    await expect(generateText({ model: provider()('other'), prompt: 'a', maxRetries: 0 })).rejects.toMatchObject({
      statusCode: 404,
      isRetryable: false,
    });
    scripts = [{ ...text, error: new Error('x') }];
    const errors: unknown[] = [];
    const stream = streamText({
      model: provider()(model),
      prompt: 'a',
      maxRetries: 0,
      onError: ({ error }) => void errors.push(error),
    });
    await stream.consumeStream();
    expect(errors).toHaveLength(1);
  });
});

describe('LangChain', () => {
  const chat = (fields = {}) =>
    new ChatOpenAI({
      model,
      apiKey: 'key',
      maxRetries: 0,
      configuration: {
        baseURL: 'http://localhost/v1',
        fetch: (url: unknown, init?: RequestInit) => server.fetch(new Request(url as string, init)),
      },
      ...fields,
    });

  test('text, whole and in a stream', async () => {
    scripts = [text, text];
    const whole = await chat().invoke([new HumanMessage('Hello')]);
    expect([whole.content, whole.usage_metadata?.total_tokens]).toEqual(['Good morning!', 6]);
    const parts: unknown[] = [];
    for await (const chunk of await chat().stream([new HumanMessage('Hello')])) parts.push(chunk.content);
    expect(parts.join('')).toBe('Good morning!');
  });

  test('reasoning tokens are among its figures', async () => {
    scripts = [thinking];
    const { usage_metadata: usage } = await chat().invoke([new HumanMessage('Hello')]);
    expect([usage?.output_tokens, usage?.output_token_details?.reasoning]).toEqual([5, 2]);
  });

  test('tools and an object by a schema', async () => {
    scripts = [weather, text, { pieces: [{ type: 'text', text: '{"city":"Bergen"}' }] }];
    const weatherTool = langchainTool(({ city }: { city: string }) => `${city}: rain`, {
      name: 'weather',
      description: 'The weather',
      schema: City,
    });
    const bound = chat().bindTools([weatherTool]);
    const called = await bound.invoke([new HumanMessage('Hello')]);
    expect(called.tool_calls).toMatchObject([
      { id: 'call_1', name: 'weather', args: { city: 'Oslo' } },
      { id: 'call_2' },
    ]);
    const results = await Promise.all(called.tool_calls!.map((call) => weatherTool.invoke(call)));
    const answer = await bound.invoke([new HumanMessage('Hello'), called as AIMessage, ...results]);
    expect(answer.content).toBe('Good morning!');
    const city = await chat()
      .withStructuredOutput(z.object({ city: z.string() }), { method: 'jsonSchema' })
      .invoke('Hello');
    expect(city).toEqual({ city: 'Bergen' });
  });
});
