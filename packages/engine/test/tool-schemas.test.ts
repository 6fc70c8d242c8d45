/** Tools whose parameters are schemas of zod: what calls them is checked, transformed and typed. */
import type { ToolDefinition } from '@x/transformers';
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import { type LanguageModel, loadModel, type ParsedCall, type StandardSchema } from '../src';
import { openDevice, TINY } from './helpers';

const add = {
  name: 'add',
  description: 'Adds two digits.',
  parameters: z.object({
    a: z.int().min(0).max(9),
    b: z
      .int()
      .min(0)
      .max(9)
      .transform((b) => b * 100),
  }),
};
const say = {
  name: 'say',
  parameters: { type: 'object', properties: { what: { enum: ['yes', 'no'] } }, required: ['what'] },
};
const user = [{ role: 'user', content: 'x' }] as const;

describe('tools with schemas of zod', () => {
  let model: LanguageModel;
  beforeAll(async () => {
    const chatTemplate =
      '{{ messages | length }}{% if thinking %}{{ tools | tojson }}{% endif %}<tool_call></tool_call>';
    model = await loadModel(TINY, { device: openDevice('cpu'), chatTemplate });
  });
  afterAll(() => model.dispose());
  const random = (seed: number) => ({ temperature: 9, seed, maxTokens: 200 });

  it('give calls whose arguments are what the schema makes of them', async () => {
    for (const seed of [1, 2, 3]) {
      const answer = model.generateChat(user, { tools: [add, say], toolChoice: { name: 'add' }, ...random(seed) });
      const [call] = await answer.calls();
      const { toolCalls } = await answer.message();
      if (call.name !== 'add') throw new Error(`calls ${call.name}`);
      const { a, b } = call.arguments as { a: number; b: number };
      expect(a >= 0 && a <= 9 && b % 100 === 0 && b <= 900).toBe(true);
      // The message keeps what the model wrote, which the template shows it again.
      expect(toolCalls).toEqual([{ id: call.id, name: 'add', arguments: { a, b: b / 100 } }]);
    }
  });

  it('are described to the model as JSON Schema', () => {
    const prompt = model.chatTemplate.render(user, { tools: [add], variables: { thinking: true } });
    expect(prompt).toContain('"maximum": 9');
    expect(prompt).not.toContain('$schema');
    expect(prompt).not.toContain('~standard');
  });

  it('are typed by name', async () => {
    const chat = model.chat({ tools: [add, say], toolChoice: 'required', ...random(5) });
    const turn = chat.send('x');
    const calls = await turn.calls();
    expectTypeOf(calls).toEqualTypeOf<
      (
        | { id: string; name: string; arguments: { a: number; b: number } }
        | { id: string; name: string; arguments: Record<string, unknown> }
      )[]
    >();
    expect(calls.map(({ name }) => name)).toEqual(chat.messages.at(-1)!.toolCalls!.map(({ name }) => name));
    const other = chat.send('x', { tools: [{ name: 'only', parameters: add.parameters }], ...random(6) });
    const [only] = await other.calls();
    expectTypeOf(only.name).toEqualTypeOf<'only'>();
    expectTypeOf(only.arguments).toEqualTypeOf<{ a: number; b: number }>();
    expect(only.arguments.b % 100).toBe(0);
    expectTypeOf<ParsedCall>().toEqualTypeOf<{ id: string; name: string; arguments: Record<string, unknown> }>();
  });

  it('refuse what they check beyond JSON Schema, with the name of the tool', async () => {
    const never = { name: 'never', parameters: z.object({ ok: z.boolean().refine(() => false, 'not so') }) };
    const answer = model.generateChat(user, { tools: [never], toolChoice: 'required', ...random(1) });
    await expect(answer.calls()).rejects.toMatchObject({
      code: 'INVALID_VALUE',
      message: expect.stringMatching(/^The tool "never" refuses the arguments.*ok: not so/),
    });
    expect((await answer.message()).toolCalls).toHaveLength(1);
  });

  it('are saved with a chat as JSON Schema', () => {
    const chat = model.chat({ tools: [add] });
    const saved = JSON.parse(JSON.stringify(chat));
    expect(saved.options.tools[0].parameters.properties.a).toMatchObject({ minimum: 0, maximum: 9 });
    expect(model.chat({}, saved).send('x').promptIds).toEqual(chat.send('x').promptIds);
  });

  it('are refused where they cannot be described', () => {
    const offer = (parameters: StandardSchema) => () =>
      model.generateChat(user, { tools: [say, { name: 'f', parameters }] satisfies ToolDefinition[] });
    const silent: StandardSchema = { '~standard': { version: 1, vendor: 'other', validate: (value) => ({ value }) } };
    expect(offer(silent)).toThrow(/tools\[1\]\.parameters: the other schema does not tell its JSON Schema/);
    expect(offer(z.object({ at: z.date() }))).toThrow(
      /tools\[1\]\.parameters: the zod schema has no JSON Schema \(.*Date/,
    );
    expect(() => model.generate('a', { schema: z.date() })).toThrow(/the zod schema has no JSON Schema/);
  });
});
