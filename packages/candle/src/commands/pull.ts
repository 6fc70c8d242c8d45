/** `candle pull NAME`: a model of the Hugging Face hub into the cache that all its tools share. */
import { resolve } from '@x/hub';
import { Command } from 'commander';
import { download } from '../download';
import { interruptible } from '../interrupt';
import { wholeNumber } from '../option-values';
import { formatBytes, guarded, printJson, table } from '../output';

interface PullCommandOptions {
  dryRun?: boolean;
  connections?: number;
  json?: boolean;
}

export function pullCommand(): Command {
  return new Command('pull')
    .description('download a model from the Hugging Face hub, or what is missing of it')
    .argument('<name>', 'hf:org/repo, hf:org/repo:Q4_K_M or hf:org/repo:Q4_K_M@revision')
    .option('--dry-run', 'say which files and how many bytes it would be')
    .option('--connections <count>', 'files that are downloaded at once, default 4', wholeNumber(1, 64))
    .option('--json', 'print one JSON object')
    .action((name: string, options: PullCommandOptions) =>
      guarded(options.json, () => interruptible((signal) => run(name, options, signal))),
    );
}

async function run(name: string, options: PullCommandOptions, signal: AbortSignal): Promise<void> {
  const { json, connections } = options;
  if (options.dryRun) {
    const model = await resolve(name, { signal });
    if (json) printJson(model);
    else {
      const rows = model.files.map(({ path, size }) => [path, formatBytes(size)]);
      const missing = `${formatBytes(model.missingBytes)} of ${formatBytes(model.totalBytes)} to download`;
      process.stdout.write(`${table(rows)}\n${model.name}, commit ${model.commit}: ${missing}\n`);
    }
    return;
  }
  const model = await download(name, { json, connections, signal });
  if (json) {
    printJson(model);
    return;
  }
  const came = model.downloadedBytes === 0 ? 'was here' : `${formatBytes(model.downloadedBytes)} downloaded`;
  process.stderr.write(`${model.name}: ${formatBytes(model.totalBytes)}, ${came}\n`);
  process.stdout.write(`${model.path}\n`);
}
