/** Prompts of the AI SDK as messages of a chat. */
import type { LanguageModelV3Message, LanguageModelV3Prompt, LanguageModelV3ToolResultOutput } from '@ai-sdk/provider';
import type { ChatMessage, ToolCall } from '@x/transformers';
import { ServerError } from '../errors';
import { argumentsOf } from '../written-calls';

/** @throws ServerError INVALID_OPTION for images and other files */
export function chatMessages(prompt: LanguageModelV3Prompt): ChatMessage[] {
  return prompt.flatMap(toMessages);
}

function toMessages(message: LanguageModelV3Message): ChatMessage[] {
  if (message.role === 'system') return [{ role: 'system', content: message.content }];
  if (message.role === 'tool') {
    return message.content.flatMap((part): ChatMessage[] => {
      if (part.type !== 'tool-result') return [];
      return [{ role: 'tool', toolCallId: part.toolCallId, name: part.toolName, content: outputText(part.output) }];
    });
  }
  let [content, reasoning] = ['', ''];
  const toolCalls: ToolCall[] = [];
  for (const part of message.content) {
    if (part.type === 'text') content += part.text;
    else if (part.type === 'reasoning') reasoning += part.text;
    else if (part.type === 'tool-call')
      toolCalls.push({ id: part.toolCallId, name: part.toolName, arguments: inputOf(part.input) });
    else
      throw new ServerError(
        'INVALID_OPTION',
        `A message of the ${message.role} has a part of the type "${part.type}"; these models take text alone.`,
      );
  }
  return [
    {
      role: message.role,
      content,
      ...(reasoning !== '' && { reasoning }),
      ...(toolCalls.length > 0 && { toolCalls }),
    },
  ];
}

/** The AI SDK keeps arguments parsed; a text is what a model has written. */
function inputOf(input: unknown): Record<string, unknown> {
  return argumentsOf(typeof input === 'string' ? input : JSON.stringify(input ?? {}));
}

function outputText(output: LanguageModelV3ToolResultOutput): string {
  switch (output.type) {
    case 'text':
    case 'error-text':
      return output.value;
    case 'json':
    case 'error-json':
      return JSON.stringify(output.value);
    case 'execution-denied':
      return output.reason ?? 'The call was not allowed.';
    case 'content':
      return output.value
        .map((part) => {
          if (part.type === 'text') return part.text;
          throw new ServerError(
            'INVALID_OPTION',
            `The result of a tool has a part of the type "${part.type}"; these models take text alone.`,
          );
        })
        .join('');
  }
}
