/**
 * Logits beside those of transformers: a table of the models of models/tiny by file, device and mode (tools/models/differences.ts says which).
 *
 *   tsx tools/bench/differences.ts                     js and cpu, all models
 *   tsx tools/bench/differences.ts --devices cuda:0 --models llama,qwen3
 *
 * The last row is a model in q8_0 blocks beside what PyTorch computes of the same blocks, made f32.
 */
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { Device } from '@x/core';
import { cases, differences, MODES, quantizedCase } from '../models/differences';

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { devices: { type: 'string' }, models: { type: 'string' } } });
  const devices = (values.devices ?? 'js,cpu').split(',');
  const list = values.models ? cases(values.models.split(',')) : [...cases(), quantizedCase()];
  const header = ['model', 'file', ...devices.flatMap((name) => MODES.map((mode) => `${name} ${mode}`))];
  const kept = header.filter((name) => name !== 'js captured');
  console.log(`| ${kept.join(' | ')} |\n| ${kept.map(() => '---').join(' | ')} |`);
  for (const one of list) {
    const cells: string[] = [];
    for (const name of devices) {
      const found = await differences(one, Device.parse(name));
      cells.push(...MODES.flatMap((mode) => (found[mode] === undefined ? [] : [found[mode].toExponential(0)])));
    }
    console.log(`| ${[one.model, basename(one.path).replace(/^.*-|^model\./, ''), ...cells].join(' | ')} |`);
  }
}

await main();
