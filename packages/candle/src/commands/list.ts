/** `candle list`: models in the cache, by the names that load them. */
import { list } from '@x/hub';
import { Command } from 'commander';
import { formatBytes, guarded, printJson, table } from '../output';

export function listCommand(): Command {
  return new Command('list')
    .alias('ls')
    .description('show the models that were downloaded from the Hugging Face hub')
    .option('--json', 'print one JSON object')
    .action((options: { json?: boolean }) =>
      guarded(options.json, async () => {
        const models = await list();
        if (options.json) {
          printJson({ models });
          return;
        }
        if (models.length === 0) {
          process.stderr.write('no models here; download one with candle pull hf:org/repo\n');
          return;
        }
        const rows = models.map(({ name, bytes, modified, commit, refs }) => {
          const day = modified.toISOString().slice(0, 10);
          return [name, formatBytes(bytes), day, commit.slice(0, 8), refs.join(', ')];
        });
        process.stdout.write(`${table([['name', 'size', 'downloaded', 'commit', 'revision'], ...rows])}\n`);
      }),
    );
}
