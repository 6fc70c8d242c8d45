/**
 * The `candle` command: one file for each subcommand in commands/. Each takes `--json` and then prints one JSON object on one line.
 * Exit statuses: 0, 1 for a failure, 2 for a wrong command line, 128 and a signal's number for an interrupt.
 */
import { Command, CommanderError } from 'commander';
import { version } from '../package.json';
import { batchCommand } from './commands/batch';
import { benchCommand } from './commands/bench';
import { chatCommand } from './commands/chat';
import { devicesCommand } from './commands/devices';
import { doctorCommand } from './commands/doctor';
import { embedCommand } from './commands/embed';
import { inspectCommand } from './commands/inspect';
import { listCommand } from './commands/list';
import { pullCommand } from './commands/pull';
import { quantizeCommand } from './commands/quantize';
import { rmCommand } from './commands/rm';
import { runCommand } from './commands/run';
import { serveCommand } from './commands/serve';
import { watchOutput } from './interrupt';
import { printError } from './output';

const program = new Command('candle')
  .description('Run language models on AMD and NVIDIA GPUs and CPUs')
  .version(version);
for (const make of [
  runCommand,
  serveCommand,
  batchCommand,
  chatCommand,
  embedCommand,
  pullCommand,
  listCommand,
  rmCommand,
  benchCommand,
  devicesCommand,
  doctorCommand,
  inspectCommand,
  quantizeCommand,
])
  program.addCommand(make());
for (const command of [program, ...program.commands]) {
  const name = command === program ? 'candle' : `candle ${command.name()}`;
  // What is wrong is one line, also where commander adds a suggestion on a second one.
  const outputError = (text: string) =>
    printError(process.argv.includes('--json'), 'USAGE', `${text.replace(/^error: /, '').trim()} (${name} --help)`);
  command.exitOverride().configureOutput({ outputError });
}

async function main(): Promise<void> {
  watchOutput();
  try {
    await program.parseAsync();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    process.exitCode = error.exitCode === 0 ? 0 : 2;
  }
}

void main();
