/**
 * `candle chat MODEL`: a conversation with a model, on a terminal or over pipes. Answers go to stdout, all else to stderr; with
 * `--json` each answer is one object on one line.
 */
import { existsSync, readFileSync } from 'node:fs';
import { CandleError } from '@x/core';
import type { ChatSessionOptions, LanguageModel } from '@x/engine';
import { Command, InvalidArgumentError } from 'commander';
import { Conversation } from '../chat/conversation';
import { NO_INPUT, openInput } from '../chat/input';
import { note, type ShowReasoning } from '../chat/printer';
import { ChatSettings, jsonOrText } from '../chat/settings';
import { followed } from '../devices';
import { addFormFlags, type FormFlags, grammarOf } from '../form-options';
import { addGenerateFlags, type GenerateFlags, generateOptionsOf } from '../generate-options';
import { Interrupted, interruptible, isOutputClosed } from '../interrupt';
import { loadForCommand } from '../load-model';
import { someText } from '../option-values';
import { guarded, paint, UsageError } from '../output';
import { addSpeculativeFlags, checkSpeculative, loadDrafts, type SpeculativeFlags } from '../speculative';
import { textFromStdin } from '../standard-input';

interface ChatFlags extends GenerateFlags, FormFlags, SpeculativeFlags {
  prompt?: string;
  system?: string;
  load?: string;
  chatTemplate?: string;
  think?: boolean;
  templateVariable?: Record<string, unknown>;
  reasoning?: ShowReasoning;
  whenFull: 'error' | 'drop-oldest';
  stats?: boolean;
  json?: boolean;
}

export function chatCommand(): Command {
  const command = new Command('chat')
    .description('chat with a model that was made for it')
    .argument(
      '<model>',
      'a .gguf file, a directory with config.json, *.safetensors and tokenizer.json, or hf:org/repo:Q4_K_M',
    )
    .option(
      '-p, --prompt <text>',
      'one message: print its answer and leave; - reads it from standard input',
      someText('Give some text.'),
    )
    .option('-s, --system <text>', 'what the model is told before all else')
    .option('--load <file>', 'go on with a chat that /save wrote')
    .option('--chat-template <file>', 'a Jinja template in place of the model’s, or chatml');
  return addSpeculativeFlags(addFormFlags(addGenerateFlags(command, { temperature: 0.7 })))
    .option('--think', 'ask for reasoning, where the template has a switch for it')
    .option('--no-think', 'ask for an answer without reasoning')
    .option('--template-variable <name=value...>', 'a variable of the template', templateVariable)
    .option('--reasoning <show|hide>', 'default: shown on a terminal', showReasoning)
    .option('--when-full <error|drop-oldest>', 'what happens when the context is full', whenFull, 'drop-oldest')
    .option('--stats', 'print figures after each answer')
    .option('--json', 'print each answer as one JSON object')
    .action((model: string, flags: ChatFlags) =>
      guarded(flags.json, () => interruptible((signal) => chat(model, flags, signal))),
    );
}

async function chat(name: string, flags: ChatFlags, signal: AbortSignal): Promise<void> {
  const { json = false, stats = false } = flags;
  if (await followed(name, flags, { json, signal })) return;
  const prompt = flags.prompt === '-' ? await textFromStdin(signal) : flags.prompt;
  const chatTemplate = templateText(flags.chatTemplate);
  const grammar = grammarOf(flags);
  checkSpeculative(flags);
  const { path, ...loaded } = await loadForCommand(name, flags, signal, { chatTemplate });
  using model = loaded.model;
  const { speculative, draft } = await loadDrafts(flags, model, { json, signal });
  using _draft = draft;
  const template = { ...flags.templateVariable };
  if (flags.think !== undefined) template.enable_thinking ??= flags.think;
  const { whenFull } = flags;
  const options: ChatSessionOptions = { ...generateOptionsOf(flags), grammar, speculative, template, whenFull };
  const settings = new ChatSettings(options, flags.reasoning ?? (process.stdout.isTTY ? 'show' : 'hide'));
  checkChat(model, options);
  const isTerminal = process.stdin.isTTY && prompt === undefined;
  if (isTerminal && !json) note(`${path} on ${model.device}; /help lists commands, Ctrl+D leaves`);
  const input = prompt === undefined ? openInput(paint('bold', '> ')) : NO_INPUT;
  const stop = () => input.close();
  signal.addEventListener('abort', stop);
  try {
    const conversation = new Conversation(model, input, settings, { json, stats }, signal, flags.system);
    if (flags.load !== undefined) conversation.load(flags.load);
    if (prompt !== undefined) await conversation.say(prompt);
    else if (await conversation.run()) process.exitCode = 130;
  } catch (error) {
    if (!(error instanceof Interrupted) || !isOutputClosed()) throw error;
  } finally {
    signal.removeEventListener('abort', stop);
    input.close();
  }
}

/** Whatever the model lacks is said before anything is asked. */
function checkChat(model: LanguageModel, options: ChatSessionOptions): void {
  try {
    model.chat(options);
  } catch (cause) {
    if ((cause as CandleError).code !== 'NO_CHAT_TEMPLATE') throw cause;
    const message = `the model's files have no chat template, so it may not be made for chats. Give --chat-template chatml or the file of another one, or take its instruct version.`;
    throw new CandleError('NO_CHAT_TEMPLATE', message, { cause });
  }
}

/** The text of `--chat-template`. */
function templateText(value: string | undefined): string | undefined {
  if (value === undefined || value === 'chatml') return value;
  if (existsSync(value)) return readFileSync(value, 'utf8');
  throw new UsageError(`--chat-template: there is no file ${value}; give the path of a Jinja template, or chatml.`);
}

function templateVariable(text: string, all: Record<string, unknown> = {}): Record<string, unknown> {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('Give NAME=VALUE, such as reasoning_effort=low.');
  return { ...all, [text.slice(0, at)]: jsonOrText(text.slice(at + 1)) };
}

function choice<T extends string>(allowed: readonly T[]): (text: string) => T {
  return (text) => {
    const found = allowed.find((each) => each === text);
    if (found !== undefined) return found;
    throw new InvalidArgumentError(`Give ${allowed.join(' or ')}.`);
  };
}
const showReasoning = choice(['show', 'hide']);
const whenFull = choice(['error', 'drop-oldest']);
