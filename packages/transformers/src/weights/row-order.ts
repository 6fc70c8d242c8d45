/**
 * The order of rows of queries and keys: checkpoints of some architectures rotate the halves of a head with each other, and
 * llama.cpp's converter makes neighbours of them.
 */

/** The row in a checkpoint that is row `row` of a GGUF file, in heads of `size` rows: neighbours come from both halves. */
export function checkpointRow(row: number, size: number): number {
  const within = row % size;
  return row - within + (within % 2) * (size / 2) + Math.floor(within / 2);
}

/** The inverse: the row of a GGUF file that is row `row` in a checkpoint. */
export function ggufRow(row: number, size: number): number {
  const within = row % size;
  const half = size / 2;
  return row - within + (within % half) * 2 + Math.floor(within / half);
}
