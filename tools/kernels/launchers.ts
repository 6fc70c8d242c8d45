/**
 * Writes packages/rocm-backend/src/launchers/, a file a module: a function for each signature that kernels are declared with,
 * whose argument names the parameters, so that none can be forgotten or change places. Run it when a declaration changes:
 *
 *   tsx tools/kernels/launchers.ts
 *
 * Declarations come from the preprocessed sources, where macros have put together the names of all dtypes' kernels.
 *
 * Beside them it writes constants.ts: numbers in headers that launches depend on too. A header marks one with its name in TypeScript:
 * `constexpr u32 ROWS = 64;  // launchers: PROMPT_ROWS`.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { camelCase } from '../parity/candle';
import { listModules } from './amalgamate';
import { findCompiler } from './toolchain';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const KERNELS = join(ROOT, 'kernels');
export const LAUNCHERS = join(ROOT, 'packages/rocm-backend/src/launchers');

interface Parameter {
  name: string;
  type: string;
}

interface Signature {
  module: string;
  parameters: Parameter[];
  kernels: string[];
}

/** Names of launchers whose kernels' names begin with nothing in common, or with what says little. By one of the kernels. */
const NAMES: Record<string, string> = {
  uelu_f32: 'unaryParam',
  gemm_f32: 'gemm',
  gemm_groups_f32: 'gemmGroups',
  linear_many_f16: 'linear',
  mul_mat_grouped_q4_0: 'mulMatGrouped',
  mul_mat_stream_grouped_q4_0_16: 'mulMatStreamGrouped',
  sample_f32: 'sample',
  sample_scan_f32: 'sampleParts',
  follow_u32: 'follow',
  is_u32_f32: 'indexSelect',
  ia_u32_f32: 'indexAdd',
  s_u32_f32: 'scatter',
  s_view_u32_b32: 'scatterView',
  conv_groups_f32: 'convGroups',
  lstm_f32: 'lstm',
  max_pool2d_f32: 'pool2d',
  sum_f32: 'sumInto',
  rand_uniform_f32: 'random',
  part_sum_f32: 'part',
  part_argmax_f32: 'partArg',
  done_sum_f32: 'done',
  done_argmax_f32: 'doneArg',
  cols_sum_f32: 'cols',
  cols_argmax_f32: 'colsArg',
  cols_done_sum_f32: 'colsDone',
  cols_done_argmax_f32: 'colsDoneArg',
  rows_sum_f32: 'rows',
  fast_sum_f32: 'fast',
  topk_f32: 'topk',
  sort_radix_count_f32: 'sortRadixCountFirst',
  sort_radix_scatter_f32: 'sortRadixScatterFirst',
  dequantize_block_q4_0_f32: 'dequantizeCounted',
  dequantize_block_q4_0_bf16: 'dequantizePairs',
  mul_mat_q4_0: 'mulMat',
  mul_mat_vec_q4_0_q8_1_cuda1: 'mulMatVec',
  mul_mat_vec_q8_1_q8_1_upto8: 'mulMatVecUpTo',
  mul_mat_vec_beside_q8_1: 'mulMatVecBeside',
  dequantize_mul_mat_vec_q5_k: 'dequantizeMulMatVecColumns',
  quantize_q8_1: 'quantizeQ81',
  attention_paged_1_f32_q8_0: 'attentionPagedQ8',
  attention_append_f32_q8_0: 'attentionAppendQ8',
  attention_unpack_q8_0_f32: 'attentionUnpack',
  decode_heads_q8_0: 'decodeHeadsQ8',
  ssd_f32_d32: 'ssd',
  ssd_chunks_f32_d32: 'ssdChunks',
  gated_delta_rule_f32_d32: 'gatedDeltaRule',
  gated_delta_rule_chunks_f32_d32: 'gatedDeltaRuleChunks',
};

/** A parameter in TypeScript: addresses and counts are numbers, values of a kernel's dtype may be 64-bit integers. */
function typeOf({ type }: Parameter): string {
  if (type.includes('*')) return 'Address';
  if (type === 'bool') return 'boolean';
  return ['u64', 'u32', 'i32', 'float', 'double'].includes(type) ? 'number' : 'number | bigint';
}

function declarations(module: string): { kernel: string; parameters: Parameter[] }[] {
  const flags = [
    '-x',
    'c++',
    '-E',
    '-P',
    '-std=c++17',
    '-w',
    '-DX_LISTED=1',
    `-I${KERNELS}`,
    `-I${join(KERNELS, 'include')}`,
  ];
  const text = execFileSync(findCompiler('host').path, [...flags, join(KERNELS, `${module}.hip`)], {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
  });
  // The host's form of a kernel (kernels/include/x/kernel.h), declared before it is defined.
  const found = text.matchAll(/void x_body_(\w+)\s*\(([^()]*)\)\s*;/g);
  return [...found].map(([, kernel, list]) => ({
    kernel: kernel!,
    parameters: list!
      // Commas within template arguments separate no parameters.
      .replace(/<[^<>]*>/g, '')
      .split(',')
      .map((text) => /^(.*?)\s*(\w+)$/s.exec(text.replace('__restrict__', '').trim())!)
      // A parameter `t` is what the macro's `t` stands for, a dtype.
      .map(([, type, name]) => ({
        type: type!,
        name: /^(f8e4m3|bf16|f16|f32|f64)$/.test(name!) ? 't' : camelCase(name!),
      })),
  }));
}

/** Signatures of all modules, in the order of their first kernels. Only a parameter's names and kinds tell two apart. */
export function signatures(): Signature[] {
  return listModules(KERNELS).flatMap((module) => {
    const found = new Map<string, Signature>();
    for (const { kernel, parameters } of declarations(module)) {
      const names = parameters.map(({ name, type }) => `${name}${type.includes('*') ? '*' : ''}`).join();
      const known = found.get(names) ?? { module, parameters, kernels: [] };
      known.kernels.push(kernel);
      // A value that is i64 for one dtype is so for the launcher.
      for (const [i, parameter] of parameters.entries())
        if (typeOf(parameter) === 'number | bigint') known.parameters[i] = parameter;
      found.set(names, known);
    }
    return [...found.values()];
  });
}

function nameOf({ module, kernels }: Signature): string {
  const given = kernels.find((kernel) => kernel in NAMES);
  if (given) return NAMES[given]!;
  let prefix = kernels[0]!;
  for (const kernel of kernels) while (!kernel.startsWith(prefix)) prefix = prefix.slice(0, -1);
  const words = prefix.replace(/_(u|i|f|b|bf|q|asc|desc|u8|i16|f32|bf16|f16)?$/, '').replace(/_(bf16|f16|f32|u8)$/, '');
  return camelCase(words.length < 2 ? module : words);
}

/** The files by their names, formatted as the repository's are. */
export function launcherFiles(): Map<string, string> {
  const names = new Set<string>();
  const files = new Map<string, string[]>();
  for (const signature of signatures()) {
    const name = nameOf(signature);
    if (names.has(name))
      throw new Error(`two launchers are called ${name}: name one in NAMES (${signature.kernels[0]})`);
    names.add(name);
    const { module } = signature;
    files.set(module, [...(files.get(module) ?? []), launcherText(name, signature)]);
  }
  return new Map([
    ['constants.ts', formatted(constantsText())],
    ...[...files].map(([module, functions]): [string, string] => [
      `${module}.ts`,
      formatted(`/** Written by tools/kernels/launchers.ts from the declarations in kernels/${module}.hip: do not edit. */
import { ${module.toUpperCase()} } from '@x/kernels';
import type { LaunchShape } from '../launch-shape';
import type { Address, Launcher } from './launcher';

${functions.join('\n')}`),
    ]),
  ]);
}

function constantsText(): string {
  const headers = readdirSync(KERNELS, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.h'));
  const constants = headers.sort().flatMap((header) => {
    const marked = readFileSync(join(KERNELS, header), 'utf8').matchAll(
      /constexpr u32 \w+ = (\d+); +\/\/ launchers: (\w+)$/gm,
    );
    const lines = [...marked].map(([, value, name]) => `export const ${name} = ${value};`);
    return lines.length > 0 ? [`// kernels/${header}`, ...lines] : [];
  });
  return `/** Written by tools/kernels/launchers.ts from constants of the kernels' headers: do not edit. */\n${constants.join('\n')}\n`;
}

function launcherText(name: string, { parameters, kernels, module }: Signature): string {
  const fields = parameters.map((parameter) => `  ${parameter.name}: ${typeOf(parameter)};`);
  const values = parameters.map((parameter) =>
    typeOf(parameter) === 'boolean' ? `Number(a.${parameter.name})` : `a.${parameter.name}`,
  );
  const upper = name[0]!.toUpperCase() + name.slice(1);
  const others = kernels.length > 1 ? `, and ${kernels.length - 1} more` : '';
  return `/** \`${kernels[0]}\`${others}. */
export interface ${upper}Arguments {
${fields.join('\n')}
}

export function launch${upper}(device: Launcher, kernel: string, shape: LaunchShape, a: ${upper}Arguments): void {
  device.launch(${module.toUpperCase()}, kernel, shape, [${values.join(', ')}]);
}
`;
}

function formatted(text: string): string {
  const biome = join(ROOT, 'node_modules/.bin/biome');
  return execFileSync(biome, ['check', '--write', `--stdin-file-path=${join(LAUNCHERS, 'module.ts')}`], {
    input: text,
    encoding: 'utf8',
    cwd: ROOT,
    maxBuffer: 2 ** 24,
  });
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  mkdirSync(LAUNCHERS, { recursive: true });
  for (const [file, text] of launcherFiles()) writeFileSync(join(LAUNCHERS, file), text);
}
