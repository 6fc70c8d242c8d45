/** The matrices of an adapter's file, two for each layer. */
import { formatShape, type Shape } from '@x/core';
import { badAdapter, unsupportedAdapter } from '../weights/lora';

/** One of them, as the file has it. */
export interface StoredMatrix {
  /** Its name in the file. */
  readonly name: string;
  readonly shape: Shape;
}

/** A [rank, in] and B [out, rank] of one layer. */
export interface StoredPair {
  /** The layer, as the file calls it. */
  readonly module: string;
  readonly rank: number;
  readonly a: StoredMatrix;
  readonly b: StoredMatrix;
}

/**
 * Puts A and B of each layer together.
 * @throws TransformersError BAD_ADAPTER where one is missing or their sizes differ, UNSUPPORTED_ADAPTER for others than matrices
 */
export function pairsOf(
  path: string,
  stored: Iterable<{ module: string; part: 'a' | 'b'; matrix: StoredMatrix }>,
): StoredPair[] {
  const found = new Map<string, Partial<Record<'a' | 'b', StoredMatrix>>>();
  for (const { module, part, matrix } of stored) found.set(module, { ...found.get(module), [part]: matrix });
  if (found.size === 0) throw badAdapter(path, 'holds no LoRA matrices');
  return [...found].map(([module, { a, b }]) => {
    if (!a || !b) throw badAdapter(path, `holds only one of the two matrices of ${module}`);
    for (const { name, shape } of [a, b])
      if (shape.length !== 2)
        throw unsupportedAdapter(path, `has a tensor ${name} ${formatShape(shape)}, no matrix of a linear layer`);
    const [rank] = a.shape;
    if (rank === 0 || rank !== b.shape[1])
      throw badAdapter(
        path,
        `has matrices of ${module} that do not go together: ${formatShape(a.shape)} and ${formatShape(b.shape)}`,
      );
    return { module, rank, a, b };
  });
}
