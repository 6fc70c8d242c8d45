/** Makes something of several parts; those that were made are given back when a later one fails. */
export async function owning<T>(make: (own: OwnPart) => Promise<T>): Promise<T> {
  const made: { dispose(): void }[] = [];
  try {
    return await make((part) => {
      if (part) made.push(part);
      return part;
    });
  } catch (error) {
    for (const part of made) part.dispose();
    throw error;
  }
}

/** Notes a part, if there is one. */
export type OwnPart = <T extends { dispose(): void } | undefined>(part: T) => T;
