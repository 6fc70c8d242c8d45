/** What a decode step reads of a weight: by this the rate is known at which a model reads its memory. */
export interface WeightRead {
  /** GGUF's name, with its ending. A table that is the head, too, is there twice. */
  name: string;
  /** On the device, of this rank's part. */
  bytes: number;
  /** Of a table: a token reads one of so many rows. Undefined: all of it. */
  rows?: number;
  /** Of a mixture: so many experts there are in all, of which a token reads those that it takes. */
  experts?: number;
}
