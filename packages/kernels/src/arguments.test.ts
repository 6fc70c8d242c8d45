// What is no name and no bytes is refused in words.
import { expect, it } from 'vitest';
import { AFFINE, cubinTargets, parseCodeObject, readManifest, resolveTarget } from '.';

it.each([undefined, null, 1100, ['gfx1100'], {}])('refuses %o', (value) => {
  const wrong = value as never;
  const calls = [
    () => resolveTarget(wrong),
    () => cubinTargets(wrong),
    () => readManifest(wrong),
    () => AFFINE.codeObject(wrong),
    () => AFFINE.codeObjectFor(wrong),
    () => parseCodeObject(wrong),
  ];
  const invalid = {
    code: 'KERNEL_ARGUMENT_INVALID',
    message: expect.stringMatching(/ is .+; give (its name|a Uint8Array)/),
  };
  for (const call of calls) expect(call).toThrow(expect.objectContaining(invalid));
});
