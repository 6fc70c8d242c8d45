/** A change of the memory of a cache, for other ranks to make as well. */
export type MemoryChange =
  /** Room for so many blocks. */
  | { kind: 'blocks'; count: number }
  /** What one block holds goes to another one too. */
  | { kind: 'copy'; from: number; to: number }
  /** The memory of all blocks goes. */
  | { kind: 'release' }
  /** Room for the states of so many slots. */
  | { kind: 'slots'; count: number }
  /** The memory of all slots goes. */
  | { kind: 'releaseSlots' };
