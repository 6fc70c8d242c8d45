/**
 * docs/api-parity.md: the tensor API beside candle's and beside PyTorch's common names. What stands for a name is looked up
 * in the running packages, and what is written as an expression is run; nothing is listed by hand as done.
 */
import * as core from '@x/core';
import * as files from '@x/core/files';
import * as nn from '@x/nn';
import { type CandleFunction, camelCase, parseTsv } from './candle';
import { has } from './functions';
import type { Row } from './table';

export interface TorchName {
  group: string;
  name: string;
  /** See the head of torch-names.tsv. */
  ours: string;
  note: string;
}

const SCOPED = /^(core|files|nn|device):([\w.]+)$/;

export function readTorchNames(text: string): TorchName[] {
  return parseTsv(text).map(([group = '', name = '', ours = '', note = '']) => ({ group, name, ours, note }));
}

/** A method or field of a tensor, or a static one of the class that functions do not have by themselves. */
export function tensorMember(tensor: core.Tensor, name: string): string | undefined {
  if (has(tensor, name)) return name;
  return has(core.Tensor, name) && !(name in Function.prototype) ? `Tensor.${name}` : undefined;
}

/** Whether what is named exists, and for an expression, whether it runs. */
export function isThere(ours: string, tensor: core.Tensor): boolean {
  const scoped = SCOPED.exec(ours);
  if (scoped) {
    const device = core.Device as unknown as Record<string, unknown>;
    const [, from, path] = scoped;
    if (from === 'device') return device[path!] !== undefined || has(core.Device.js(), path!);
    const found = path!
      .split('.')
      .reduce<unknown>((object, key) => (object as Record<string, unknown>)?.[key], { core, files, nn }[from!]);
    return found !== undefined;
  }
  return /^\w+$/.test(ours) ? tensorMember(tensor, ours) !== undefined : runs(ours);
}

function runs(expression: string): boolean {
  return core.scope(() => {
    const { Tensor } = core;
    const x = Tensor.arange(1, 7).reshape([2, 3]);
    const names = { ...core, x, y: x.add(1), ids: Tensor.from([1, 0], { dtype: 'u32' }) };
    try {
      const result: unknown = new Function(...Object.keys(names), `return (${expression});`)(...Object.values(names));
      return result !== undefined;
    } catch {
      return false;
    }
  });
}

/** A row a name: `missing` with the reason where nothing stands for it. */
export function torchRows(names: readonly TorchName[]): Row[] {
  const tensor = core.Tensor.zeros([1]);
  try {
    return names.map(({ name, ours, note }) => {
      if (ours === '-') return { item: name, ours: note, status: 'missing', tested: '-' };
      return {
        item: name,
        ours: shown(ours, tensor),
        status: isThere(ours, tensor) ? 'ok' : 'missing',
        tested: note || '-',
      };
    });
  } finally {
    tensor.dispose();
  }
}

/** As people write it. */
function shown(ours: string, tensor: core.Tensor): string {
  const scoped = SCOPED.exec(ours);
  if (!scoped) return /^\w+$/.test(ours) ? (tensorMember(tensor, ours) ?? ours) : ours;
  if (scoped[1] !== 'device') return `${scoped[2]} (@x/${scoped[1] === 'files' ? 'core/files' : scoped[1]})`;
  return `${has(core.Device, scoped[2]!) ? 'Device' : 'device'}.${scoped[2]}`;
}

/** Where gradients are others than PyTorch's; packages/testing/src/core/edges.ts holds them to it. */
const KINKS = [
  '### Gradients at kinks',
  '',
  'Where a function has several slopes, or none, these differ from PyTorch’s:',
  '',
  '| of | here | PyTorch | candle |',
  '|---|---|---|---|',
  '| `clamp` at a bound | 1/2 | 1 | 1/2 |',
  '| `relu6` at 0 and 6 | 1/2 | 0 | 1/2 |',
  '| `hardSigmoid` at -3 and 3 | half the slope | 0 | half the slope |',
  '| `maxPool2d`, equal elements of a window | shared evenly | the first has all | each has a part, whose sum is another |',
  '| `max` and `min` along a dimension, equal elements | shared evenly, as `amax` | the first has all | each has all |',
  '| `floor`, `ceil`, `round`, `sign` | no gradient: `NO_GRADIENT` where a loss depends on a variable by these alone | 0 | none; `ceil`: an error |',
  '',
];

/** The whole document. */
export function apiDocument(
  candle: readonly (CandleFunction & { file: string })[],
  names: readonly TorchName[],
): string {
  const tensor = core.Tensor.zeros([1]);
  const rows = torchRows(names);
  try {
    const members = candle.map((method) => ({ ...method, member: tensorMember(tensor, method.ours) }));
    const present = members.filter(({ member }) => member !== undefined).length;
    const lines = [
      '# The tensor API beside candle’s and PyTorch’s',
      '',
      'Written by `pnpm parity --write` from the running packages: do not edit.',
      '',
      '## candle',
      '',
      `${present} of ${members.length} public methods of candle’s Tensor are here, under the camelCase of their names unless the table says`,
      'otherwise. Methods that wait for a device have a second form that ends in `Sync`.',
      '',
    ];
    for (const file of new Set(members.map((method) => method.file))) {
      lines.push(`### ${file}.rs`, '', '| candle | here |', '|---|---|');
      for (const { name, ours, member } of members.filter((method) => method.file === file)) {
        lines.push(
          `| \`${name}\` | ${member ? `\`${member}\`${ours === camelCase(name) ? '' : ' (another name)'}` : 'missing'} |`,
        );
      }
      lines.push('');
    }
    const there = rows.filter(({ status }) => status === 'ok').length;
    lines.push(
      '## PyTorch',
      '',
      `${there} of ${rows.length} common names have a counterpart. An expression is how it is written here, with tensors \`x\` and \`y\` of one`,
      'shape; every one was run when this table was made.',
      '',
    );
    for (const group of new Set(names.map((name) => name.group))) {
      lines.push(`### ${group}`, '', '| PyTorch | here | |', '|---|---|---|');
      rows.forEach(({ item, ours, status, tested }, i) => {
        if (names[i]!.group !== group) return;
        const none = names[i]!.ours === '-';
        const here = none ? '–' : `\`${ours}\`${status === 'ok' ? '' : ' (missing)'}`;
        lines.push(`| \`${item}\` | ${here.replaceAll('|', '\\|')} | ${none ? ours : tested === '-' ? '' : tested} |`);
      });
      lines.push('');
    }
    lines.push(...KINKS);
    return `${lines.join('\n').trimEnd()}\n`;
  } finally {
    tensor.dispose();
  }
}
