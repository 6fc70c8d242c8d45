/** Files in the place of a model's: the pointer that a clone without Git LFS has, and the web page that a failed download leaves. */
import { FileFormatError } from '../errors';

/** First bytes of a file that {@link refuseStandIn} wants to see. */
export const STAND_IN_BYTES = 64;

const STAND_INS: readonly (readonly [begin: RegExp, what: string, remedy: string])[] = [
  [
    /^version https:\/\/git-lfs\.github\.com\/spec\/v1/,
    'is a Git LFS pointer in place of the file',
    'run `git lfs pull` in its repository, or download the file itself',
  ],
  [
    /^\s*<(?:!doctype|html)\b/i,
    'is a web page (HTML) in place of the file, such as an error or a sign-in page',
    'download it again, from the address of the file itself',
  ],
];

/**
 * For a reader that found no magic number of its own.
 * @param first the first {@link STAND_IN_BYTES} of the file, or all of a smaller one
 * @throws FileFormatError `FILE_INVALID` where they are those of such a file
 */
export function refuseStandIn(path: string, first: Uint8Array): void {
  const text = new TextDecoder().decode(first);
  for (const [begin, what, remedy] of STAND_INS) {
    if (!begin.test(text)) continue;
    throw new FileFormatError('FILE_INVALID', `${path}: it ${what}; ${remedy}.`, { path, offset: 0 });
  }
}
