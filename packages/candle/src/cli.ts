/** The `candle` command: run, devices, doctor, inspect, quantize. Each takes `--json` and then prints one JSON object on one line. */
import { Command } from 'commander';
import { version } from '../package.json';
import { devicesCommand } from './commands/devices';
import { doctorCommand } from './commands/doctor';
import { inspectCommand } from './commands/inspect';
import { quantizeCommand } from './commands/quantize';
import { runCommand } from './commands/run';

const program = new Command('candle')
  .description('Run language models on AMD and NVIDIA GPUs and CPUs')
  .version(version)
  .showHelpAfterError('(candle --help lists commands and options)');
for (const command of [runCommand(), devicesCommand(), doctorCommand(), inspectCommand(), quantizeCommand()])
  program.addCommand(command);

void program.parseAsync();
