/** Kernels that not every target has, for tests that compare what two targets have. */
import type { KernelInfo } from '@x/kernels';
import { UNIT_TYPES } from '../src/ops/vector-shape';

type Kernels = Readonly<Record<string, KernelInfo>>;
type Parameters = KernelInfo['params'];

/**
 * The parameters of all kernels that a target of a kind has, by what RDNA has of the module: there queries of 576 values have no
 * room, and only NVIDIA has products with columns in groups as streams.
 */
export function parametersOn(kind: 'nvidia' | 'cdna' | 'rdna', rdna: Kernels): Record<string, Parameters> {
  const all = Object.fromEntries(Object.entries(rdna).map(([name, { params }]) => [name, params]));
  for (const dtype of ['bf16', 'f16']) {
    const shorter = all[`attention_varlen_256_${dtype}`];
    if (shorter && kind !== 'rdna') all[`attention_varlen_576_${dtype}`] = shorter;
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
