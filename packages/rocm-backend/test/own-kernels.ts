/** Kernels that not every target has, for tests that compare what two targets have. */
import type { KernelInfo } from '@x/kernels';
import { UNIT_TYPES } from '../src/ops/vector-shape';

type Kernels = Readonly<Record<string, KernelInfo>>;
type Parameters = KernelInfo['params'];

/** Products with quantized weights that are only launched where there are matrix units. */
const FOR_UNITS = /^mul_mat_(mma|stream)_/;

/** RDNA from gfx11 on has matrix units, RDNA 2 none. */
export type Kind = 'nvidia' | 'cdna' | 'rdna' | 'rdna2';

/**
 * The parameters of all kernels that a target of a kind has, by what RDNA has of the module: there queries of 576 values have no
 * room, only NVIDIA has products with columns in groups as streams, and chips without matrix units have no products for these.
 */
export function parametersOn(kind: Kind, rdna: Kernels): Record<string, Parameters> {
  const all = Object.fromEntries(
    Object.entries(rdna).flatMap(([name, { params }]) =>
      kind === 'rdna2' && FOR_UNITS.test(name) ? [] : [[name, params] as const],
    ),
  );
  for (const dtype of ['bf16', 'f16']) {
    const shorter = all[`attention_varlen_256_${dtype}`];
    if (shorter && (kind === 'nvidia' || kind === 'cdna')) all[`attention_varlen_576_${dtype}`] = shorter;
  }
  for (const type of UNIT_TYPES) {
    const plain = all[`mul_mat_grouped_${type}`];
    if (!plain || kind !== 'nvidia') continue;
    // Behind them, parts and counters, as the stream of the type has them.
    const behind = all[`mul_mat_stream_${type}_64`].slice(-2);
    for (const columns of [16, 64, 128]) all[`mul_mat_stream_grouped_${type}_${columns}`] = [...plain, ...behind];
  }
  return all;
}
