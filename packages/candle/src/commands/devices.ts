/** `candle devices`: the devices that can be opened now, and why the others cannot. */
import { Device } from '@x/core';
import { Command } from 'commander';
import '@x/rocm-backend';
import { guarded, paint, printJson, table } from '../output';

export function devicesCommand(): Command {
  return new Command('devices')
    .description('list devices')
    .option('--json', 'print one JSON object')
    .action((options: { json?: boolean }) =>
      guarded(options.json, async () => {
        const entries = Device.list();
        const best = (await Device.auto()).toString();
        if (options.json) return printJson({ auto: best, devices: entries });
        const rows = entries.map((entry) => [
          entry.available ? paint('green', 'yes') : paint('yellow', 'no '),
          entry.name,
          entry.available ? `${entry.description}${entry.name === best ? '  (auto)' : ''}` : (entry.reason ?? ''),
        ]);
        process.stdout.write(`${table(rows)}\n`);
      }),
    );
}
