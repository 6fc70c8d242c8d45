/** A chat on the command line: messages and commands in, answers out. */
import { CandleError } from '@x/core';
import { type ChatSession, type ChatTurn, type LanguageModel, restoredChat, type SavedChat } from '@x/engine';
import { Interrupted } from '../interrupt';
import { paint, printJson, UsageError } from '../output';
import { acceptedText } from '../speculative';
import { readChat, writeChat } from './files';
import type { ChatInput } from './input';
import { AnswerPrinter, note } from './printer';
import type { ChatSettings } from './settings';

export interface ConversationOptions {
  json: boolean;
  stats: boolean;
}

const HELP = `/help                 this list
/system [TEXT]        show or change what the model is told before all else
/set [NAME VALUE]     show or change a setting; VALUE default takes it back
/regenerate           answer the last message again
/edit [N] TEXT        change your N-th message, the last by default, in a branch, and answer it
/continue             go on with the last answer
/clear                begin anew; the system message stays
/save FILE            write the chat to a file
/load FILE            go on with a chat from a file
/exit                 leave, as Ctrl+D does
A message that begins with a slash: write two. Several lines: paste them, put """ before and after, or end lines with \\.
Ctrl+C interrupts an answer; once more leaves.`;

export class Conversation {
  private chat: ChatSession;
  /** Set by Ctrl+C on an empty line: the next one leaves. */
  private leaving = false;

  constructor(
    private readonly model: LanguageModel,
    private readonly input: ChatInput,
    readonly settings: ChatSettings,
    private readonly options: ConversationOptions,
    private readonly signal: AbortSignal,
    system: string | undefined,
  ) {
    this.chat = model.chat({ system, whenFull: settings.options.whenFull });
  }

  /** Until the input ends. @returns whether it ended by Ctrl+C */
  async run(): Promise<boolean> {
    for (;;) {
      const input = await this.input.next();
      if (this.signal.aborted) throw this.signal.reason;
      if (input.type === 'end') return false;
      if (input.type === 'interrupt') {
        if (this.leaving) return true;
        this.leaving = true;
        note('Ctrl+C once more, Ctrl+D or /exit leaves');
        continue;
      }
      this.leaving = false;
      const { text } = input;
      if (text.trim() === '') continue;
      try {
        if (/^\s*\/(?!\/)/.test(text)) {
          if (await this.command(text.trim())) return false;
        } else await this.say(text.replace(/^(\s*)\/\//, '$1/'));
      } catch (error) {
        if (this.signal.aborted || !(error instanceof CandleError) || error instanceof Interrupted) throw error;
        this.fail(error);
      }
    }
  }

  /** One message and its answer. */
  async say(text: string): Promise<void> {
    await this.answer((options) => this.chat.send(text, options));
  }

  load(path: string): void {
    const saved = readChat(path);
    const { messages } = this.model.chat({}, saved);
    const { messages: _, ...options } = restoredChat(saved);
    this.settings.options = { ...this.settings.options, ...options };
    // Options come with each answer, so that /set can take them back.
    this.chat = this.model.chat({ messages, whenFull: this.settings.options.whenFull });
    const count = saved.messages.length;
    note(`${count} ${count === 1 ? 'message' : 'messages'} from ${path}`);
  }

  /** The chat with the settings as they are now. */
  private saved(): SavedChat {
    return { ...this.chat.toJSON(), options: this.model.chat(this.settings.options).toJSON().options };
  }

  /** @returns whether to leave */
  private async command(text: string): Promise<boolean> {
    const [, name, rest = ''] = /^\/(\S*)\s*(.*)$/s.exec(text)!;
    switch (name) {
      case 'help':
      case '?':
        note(HELP);
        return false;
      case 'exit':
      case 'quit':
      case 'bye':
        return true;
      case 'clear':
        this.chat.clear();
        note('the chat is empty');
        return false;
      case 'system':
        if (rest !== '') this.chat.system = rest;
        note(this.chat.system === undefined ? 'there is no system message' : `system: ${this.chat.system}`);
        return false;
      case 'set': {
        const [, key = '', value = ''] = /^(\S*)\s*(.*)$/s.exec(rest)!;
        if (key === '') note(this.settings.describe().join('\n'));
        else if (value === '') throw new UsageError(`/set ${key}: give a value, or default.`);
        else this.settings.set(key, value);
        return false;
      }
      case 'save':
        writeChat(path(name, rest), this.saved());
        note(`saved in ${rest}`);
        return false;
      case 'load':
        this.load(path(name, rest));
        return false;
      case 'regenerate':
        await this.answer((options) => this.chat.regenerate(options));
        return false;
      case 'continue':
        await this.answer((options) => this.chat.continue(options));
        return false;
      case 'edit':
        await this.edit(rest);
        return false;
      default:
        throw new UsageError(`there is no command /${name}; /help lists them, and // begins a message with a slash.`);
    }
  }

  private async edit(rest: string): Promise<void> {
    const users = this.chat.messages.flatMap(({ role }, i) => (role === 'user' ? [i] : []));
    const [, number, text] = /^(?:(\d+)\s+)?(.*)$/s.exec(rest)!;
    const index = users.at(number === undefined ? -1 : Number(number) - 1);
    if (index === undefined || number === '0')
      throw new UsageError(`/edit: there are ${users.length} messages of yours; give 1 to ${users.length}.`);
    if (text === '') throw new UsageError(`/edit: give the new text. It was: ${this.chat.messages[index].content}`);
    const before = this.chat;
    this.chat = before.branch(index);
    try {
      await this.say(text);
    } catch (error) {
      this.chat = before;
      throw error;
    }
  }

  private async answer(ask: (options: ChatSettings['options'] & { signal: AbortSignal }) => ChatTurn): Promise<void> {
    const controller = new AbortController();
    let isAsked = false;
    const interrupt = () => {
      if (isAsked) process.kill(process.pid, 'SIGINT');
      isAsked = true;
      controller.abort();
    };
    const { whenFull, ...options } = this.settings.options;
    const turn = ask({ ...options, signal: AbortSignal.any([this.signal, controller.signal]) });
    if (turn.dropped > 0) note(`the context is full: the oldest ${turn.dropped} messages are left out of the prompt`);
    const printer = new AnswerPrinter(this.settings.reasoning);
    try {
      await this.input.during(async () => {
        for await (const piece of turn) if (!this.options.json) printer.piece(piece);
      }, interrupt);
    } catch (error) {
      if (!controller.signal.aborted || this.signal.aborted) throw error;
    } finally {
      if (!this.options.json) printer.end();
    }
    this.report(turn);
  }

  private report(turn: ChatTurn): void {
    const { finishReason, stats } = turn;
    if (this.options.json) {
      const { promptTokens, reusedTokens, tokens, decodeTokensPerSecond } = stats;
      printJson({ ...turn.partial, finishReason, promptTokens, reusedTokens, tokens, decodeTokensPerSecond });
      return;
    }
    if (finishReason === 'aborted') note('interrupted; /continue goes on');
    if (finishReason === 'length') note('ended by max-tokens; /continue goes on');
    if (finishReason === 'context')
      note(`ended because the context of ${this.model.maxContext} tokens is full; --max-context gives more`);
    if (!this.options.stats) return;
    const rate = Math.round(stats.decodeTokensPerSecond * 10) / 10;
    note(
      `${stats.promptTokens} tokens read, ${stats.reusedTokens} of them known · ${stats.tokens} written at ${rate} tokens/s${acceptedText(stats)}`,
    );
  }

  /** Says what failed; over a pipe, where nobody can try again, the exit status says it, too. */
  private fail(error: CandleError): void {
    if (!process.stdin.isTTY) process.exitCode = 1;
    if (this.options.json) printJson({ error: { code: error.code, message: error.message } });
    else process.stderr.write(`${paint('red', 'error', process.stderr)} ${error.code}: ${error.message}\n`);
  }
}

function path(command: string, text: string): string {
  if (text !== '') return text;
  throw new UsageError(`/${command}: give the path of a file.`);
}
