/** What the engine's options are called in requests. Most are its names in snake case; the others differ by route. */
import type { CandleError } from '@x/core';

type Names = Readonly<Record<string, string>>;

const COMMON: Names = { adapter: 'model' };
const CHAT: Names = { ...COMMON, template: 'chat_template_kwargs', continueLast: 'continue_final_message' };

const ROUTES: Readonly<Record<string, Names>> = {
  '/v1/chat/completions': {
    ...CHAT,
    prompt: 'messages',
    schema: 'response_format',
    maxTokens: 'max_completion_tokens',
  },
  '/v1/responses': { ...CHAT, prompt: 'input', schema: 'text.format', maxTokens: 'max_output_tokens' },
  '/v1/embeddings': { prompt: 'input', texts: 'input' },
  '/detokenize': { prompt: 'tokens' },
};

/** The field of a route's requests that an option of the engine is made from; `prompt` is whatever the model reads. */
export function paramOf(option: string, route: string): string {
  const names = ROUTES[route] ?? COMMON;
  return Object.hasOwn(names, option)
    ? names[option]
    : option.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** What the engine's messages begin with. */
const CALLED = /^(generate|sampling|chat|embed|forward): /;
/** What only those can do who run the server. */
const FOR_OPERATORS = /, or load the model with [^.]*/;

/** A message of the engine in the words of a request. What it quotes of the request stays as it is. */
export function inWordsOf(route: string, { message, option }: CandleError): string {
  const called = message.replace(CALLED, '').replace(FOR_OPERATORS, '');
  return option === undefined ? called : called.replace(option, paramOf(option, route));
}
