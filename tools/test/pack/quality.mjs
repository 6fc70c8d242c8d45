// What a tarball is by itself: its size, and whether its manifest and its types say what is in it.
import { readFileSync } from 'node:fs';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { isCompiledCode, report } from './project.mjs';

/** The most that each tarball may have, in kB; a quarter above what it has now, so that a file too many is seen. */
const MOST = {
  '@x/candle': 320,
  '@x/core': 980,
  '@x/engine': 540,
  '@x/grammar': 290,
  '@x/hip': 320,
  '@x/hub': 160,
  '@x/kernels': 910,
  '@x/nn': 410,
  '@x/quantized': 500,
  '@x/rocm-backend': 480,
  '@x/server': 250,
  '@x/transformers': 800,
  '@x/hip-linux-x64-gnu': 750,
  '@x/hip-linux-arm64-gnu': 750,
  '@x/kernels-host-x64': 7000,
  '@x/kernels-host-arm64': 3000,
  '@x/kernels-gfx11': 2400,
};
/** What is left of a package's types where TypeScript's old resolution (`node10`), which reads no `exports`, asks for a part. */
const NODE10 = 'NoResolution';

export async function checkQuality(tarballs) {
  for (const [name, tarball] of Object.entries(tarballs)) {
    const bytes = new Uint8Array(readFileSync(tarball));
    const kilobytes = Math.ceil(bytes.length / 1000);
    const most = MOST[name];
    const size = `${name}: ${kilobytes} kB of at most ${most}`;
    report(
      size,
      kilobytes <= most || `${size}: leave out what nobody needs, or raise MOST in tools/test/pack/quality.mjs`,
    );
    // Notes on what could be said besides are for people.
    const { messages, pkg } = await publint({ pack: { tarball: bytes.buffer }, level: 'warning', strict: true });
    const notes = messages.map((message) => formatMessage(message, pkg));
    report(`${name}: publint`, notes.length === 0 || notes.join('\n'));
    if (isCompiledCode(name)) continue;
    const { problems = [{ kind: 'no types' }] } = await checkPackage(createPackageFromTarballData(bytes));
    const wrong = problems.filter(({ kind, resolutionKind }) => kind !== NODE10 || resolutionKind !== 'node10');
    report(`${name}: types`, wrong.length === 0 || JSON.stringify(wrong));
  }
}
