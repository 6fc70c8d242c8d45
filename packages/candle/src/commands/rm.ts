/** `candle rm NAME...`: models out of the cache. */
import { type Removed, remove } from '@x/hub';
import { Command } from 'commander';
import { formatBytes, guarded, printJson } from '../output';

export function rmCommand(): Command {
  return new Command('rm')
    .description('remove models that were downloaded from the Hugging Face hub')
    .argument('<names...>', 'as candle list shows them; hf:org/repo removes all of a repository')
    .option('--json', 'print one JSON object')
    .action((names: string[], options: { json?: boolean }) =>
      guarded(options.json, async () => {
        const removed: Removed = { models: [], freedBytes: 0 };
        for (const name of names) {
          const { models, freedBytes } = await remove(name).catch((error: unknown) => {
            if (options.json && removed.models.length > 0 && error instanceof Error)
              error.message += ` Removed before it: ${removed.models.join(', ')}.`;
            throw error;
          });
          removed.models.push(...models);
          removed.freedBytes += freedBytes;
          if (!options.json) process.stderr.write(`removed ${name}, ${formatBytes(freedBytes)} freed\n`);
        }
        if (options.json) printJson(removed);
      }),
    );
}
