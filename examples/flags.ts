/** The command lines of the examples: every one has `--help`, and says in one line what is wrong with a flag. */
import { basename, dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ParseArgsConfig, parseArgs } from 'node:util';

interface TextFlag {
  type: 'text';
  help: string;
  default?: string;
}

/** A number of `from` or more, whole unless `fractions` says otherwise. */
interface NumberFlag {
  type: 'number';
  help: string;
  default: number;
  from: number;
  fractions?: boolean;
}

interface SwitchFlag {
  type: 'switch';
  help: string;
}

export type Flag = TextFlag | NumberFlag | SwitchFlag;

type ValueOf<F extends Flag> = F extends NumberFlag
  ? number
  : F extends SwitchFlag
    ? boolean
    : F extends { default: string }
      ? string
      : string | undefined;

export const DEVICE = { type: 'text', help: 'device to compute on, such as cpu or cuda:0; default: the best' } as const;
export const JSON_FLAG = { type: 'switch', help: 'print one JSON object' } as const;

/**
 * Values of this process's flags. Prints help and ends for `--help`; ends with status 2 for what is not there or no number.
 * @param main `import.meta.url` of the example
 */
export function readFlags<F extends Record<string, Flag>>(main: string, flags: F): { [K in keyof F]: ValueOf<F[K]> } {
  const options: NonNullable<ParseArgsConfig['options']> = { help: { type: 'boolean', default: false } };
  for (const [name, { type }] of Object.entries(flags))
    options[name] = { type: type === 'switch' ? 'boolean' : 'string' };
  try {
    const { values } = parseArgs({ options });
    if (values.help === true) {
      console.log(helpOf(main, flags));
      process.exit(0);
    }
    const read = Object.entries(flags).map(([name, flag]) => [name, flagValue(name, flag, values[name] as never)]);
    return Object.fromEntries(read);
  } catch (error) {
    console.error(`error: ${(error as Error).message.split('\n')[0]} (--help lists the flags)`);
    process.exit(2);
  }
}

/** Runs an example; a failure is one line and status 1. */
export function runExample(main: () => Promise<void>): void {
  main().catch((error: Error & { code?: string }) => {
    console.error(`error${error.code === undefined ? '' : ` ${error.code}`}: ${error.message}`);
    process.exitCode = 1;
  });
}

function flagValue(
  name: string,
  flag: Flag,
  given: string | boolean | undefined,
): string | number | boolean | undefined {
  if (flag.type === 'switch') return given === true;
  if (flag.type === 'text') return (given as string | undefined) ?? flag.default;
  if (given === undefined) return flag.default;
  const value = String(given).trim() === '' ? Number.NaN : Number(given);
  const fits = flag.fractions ? !Number.isNaN(value) : Number.isSafeInteger(value);
  if (fits && value >= flag.from) return value;
  throw new Error(`--${name} is ${given}; give a ${flag.fractions ? '' : 'whole '}number of at least ${flag.from}`);
}

function helpOf(main: string, flags: Record<string, Flag>): string {
  const lines = Object.entries(flags).map(([name, flag]) => {
    const value = flag.type === 'switch' ? '' : flag.type === 'number' ? ' N' : ' TEXT';
    const usual = 'default' in flag && flag.default !== Number.POSITIVE_INFINITY ? `, default ${flag.default}` : '';
    return `  ${`--${name}${value}`.padEnd(22)} ${flag.help}${usual}`;
  });
  return [`usage: tsx examples/${basename(dirname(fileURLToPath(main)))}/main.ts [flags]`, ...lines].join('\n');
}
