/** Call options of the AI SDK as options of a chat. */
import type { LanguageModelV3CallOptions, SharedV3Warning } from '@ai-sdk/provider';
import type { ChatOptions, ToolChoice } from '@x/engine';
import type { ToolDefinition } from '@x/transformers';
import { keptShare, seedOf } from '../request/sampling';

/** @param warnings hears of what has no effect here */
export function chatOptions(options: LanguageModelV3CallOptions, warnings: SharedV3Warning[]): ChatOptions {
  const { responseFormat, stopSequences, providerOptions, toolChoice } = options;
  const tools = toolsOf(options, warnings);
  const given: ChatOptions = {
    maxTokens: options.maxOutputTokens,
    temperature: options.temperature,
    topP: options.topP === undefined ? undefined : keptShare(options.topP),
    topK: options.topK,
    presencePenalty: options.presencePenalty,
    frequencyPenalty: options.frequencyPenalty,
    seed: options.seed === undefined ? undefined : seedOf(options.seed),
    signal: options.abortSignal,
    stop: stopSequences && stopSequences.length > 0 ? stopSequences : undefined,
    schema: responseFormat?.type === 'json' ? (responseFormat.schema ?? { type: 'object' }) : undefined,
    tools: tools.length > 0 ? tools : undefined,
    toolChoice: tools.length > 0 ? choiceOf(toolChoice) : undefined,
    ...providerOptions?.candle,
  };
  // Templates and samplers have defaults for what is not given.
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

function toolsOf({ tools = [] }: LanguageModelV3CallOptions, warnings: SharedV3Warning[]): ToolDefinition[] {
  return tools.flatMap((tool): ToolDefinition[] => {
    if (tool.type === 'function')
      return [{ name: tool.name, description: tool.description, parameters: tool.inputSchema, strict: tool.strict }];
    warnings.push({
      type: 'unsupported',
      feature: `the tool ${tool.id}`,
      details: 'Models of this process call functions.',
    });
    return [];
  });
}

function choiceOf(choice: LanguageModelV3CallOptions['toolChoice']): ToolChoice | undefined {
  return choice?.type === 'tool' ? { name: choice.toolName } : choice?.type;
}
