/** What a call that fails says, its code in front. */
export function failure(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    return `${(error as { code: string }).code}: ${(error as Error).message}`;
  }
  return 'no error';
}
