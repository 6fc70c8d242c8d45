/** What `/set` changes: the options of generating, and how reasoning is asked for and shown. */
import type { ChatSessionOptions } from '@x/engine';
import { TEMPLATE_VARIABLES } from '@x/transformers';
import { InvalidArgumentError } from 'commander';
import { SETTINGS } from '../generate-options';
import { UsageError } from '../output';
import type { ShowReasoning } from './printer';

export class ChatSettings {
  constructor(
    /** Of each answer. */
    public options: Omit<ChatSessionOptions, 'system' | 'messages'>,
    public reasoning: ShowReasoning,
  ) {}

  /** All settings and their values. */
  describe(): string[] {
    const values = this.options as Record<string, unknown>;
    const shown = SETTINGS.map(({ key, flag }) => `${flag} ${values[key] ?? 'default'}`);
    const variables = Object.entries(this.options.template ?? {}).map(
      ([name, value]) => `${name} ${JSON.stringify(value)}`,
    );
    return [...shown, `reasoning ${this.reasoning}`, ...variables];
  }

  /** @throws UsageError for a name or value that is none */
  set(name: string, value: string): void {
    if (name === 'reasoning') {
      this.reasoning = oneOf('reasoning', value, ['show', 'hide']);
      return;
    }
    if (name === 'think') {
      this.setVariable('enable_thinking', oneOf('think', value, ['on', 'off']) === 'on');
      return;
    }
    if ((TEMPLATE_VARIABLES as readonly string[]).includes(name)) {
      this.setVariable(name, value === 'default' ? undefined : jsonOrText(value));
      return;
    }
    const setting = SETTINGS.find(({ flag }) => flag === name);
    if (!setting) {
      const names = [...SETTINGS.map(({ flag }) => flag), 'reasoning', 'think'].join(', ');
      throw new UsageError(`there is no setting "${name}". Settings: ${names}, and variables of the template.`);
    }
    const options: Record<string, unknown> = { ...this.options };
    if (value === 'default') delete options[setting.key];
    else options[setting.key] = parsed(setting.flag, () => setting.parse(value));
    this.options = options as ChatSettings['options'];
  }

  private setVariable(name: string, value: unknown): void {
    const template: Record<string, unknown> = { ...this.options.template, [name]: value };
    if (value === undefined) delete template[name];
    this.options = { ...this.options, template };
  }
}

function oneOf<T extends string>(name: string, value: string, allowed: readonly T[]): T {
  const found = allowed.find((each) => each === value);
  if (found === undefined) throw new UsageError(`${name} is "${value}"; give ${allowed.join(' or ')}.`);
  return found;
}

function parsed(name: string, parse: () => unknown): unknown {
  try {
    return parse();
  } catch (error) {
    if (error instanceof InvalidArgumentError) throw new UsageError(`${name}: ${error.message}`);
    throw error;
  }
}

/** `true`, `3`, `["a"]` as JSON, all else as text. */
export function jsonOrText(value: string): unknown {
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}
