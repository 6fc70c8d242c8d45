import { ChatTemplate, ReplyParser } from '@x/transformers';
import { describe, expect, test } from 'vitest';
import { ReasoningCount } from './reasoning-count';

/** Reads tokens as an answer does. */
function counted(template: string, tokens: readonly string[], inReasoning = false): number {
  const parser = new ReplyParser(ChatTemplate.fromText(template).replyFormat(), { inReasoning });
  const count = new ReasoningCount();
  for (const token of tokens) count.add(parser.push(token));
  count.add(parser.end(), 0);
  return count.tokens;
}

describe('tokens of reasoning', () => {
  const hermes = '<think></think><tool_call>';
  test.each([
    ['begun in the answer, with its mark', hermes, ['<think>', 'Be', ' brief.', '</think>', 'Good', '!'], false, 3],
    ['begun in the prompt', hermes, ['Be', ' brief.', '</think>', 'Good'], true, 2],
    ['marks of several tokens', hermes, ['<th', 'ink>', 'So', '</', 'think>', 'A'], false, 3],
    ['that is cut', hermes, ['<think>', 'Be', ' bri'], false, 3],
    ['none', hermes, ['Good', ' morning', '!'], false, 0],
    ['none before a call', hermes, ['<tool_call>', '{"name": "f", "arguments": {}}', '</tool_call>'], false, 0],
    ['where the family writes none', '{{ messages }}', ['<think>', 'Be', '</think>'], false, 0],
    [
      'in a channel of gpt-oss',
      '<|channel|><|message|>',
      [
        '<|channel|>',
        'analysis',
        '<|message|>',
        'So',
        '<|end|>',
        '<|start|>',
        'assistant',
        '<|channel|>',
        'final',
        '<|message|>',
        'A',
      ],
      false,
      4,
    ],
  ])('%s', (_, template, tokens, inReasoning, wanted) => {
    expect(counted(template, tokens, inReasoning)).toBe(wanted);
  });
});
