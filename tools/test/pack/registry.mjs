#!/usr/bin/env node
// A registry of npm on this machine with the packages of a release, for the scope @x: what a stranger's package manager asks.
// Packages of compiled code for other systems that were not packed are there as they are in git, without the code: yarn 1 downloads
// them as well. Prints its address; ends with its standard input.
//
//   node tools/test/pack/registry.mjs FOLDER   of tarballs and release.json (tools/release/stage.ts)
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { root } from '../../setup/steps.mjs';

const folder = process.argv[2];
const { packages } = JSON.parse(readFileSync(join(folder, 'release.json'), 'utf8'));
/** By package: its manifest and its tarball. */
const known = new Map();
const add = (bytes) => {
  const manifest = JSON.parse(
    execFileSync('tar', ['-xzOf', '-', 'package/package.json'], { input: bytes, encoding: 'utf8' }),
  );
  const integrity = `sha512-${createHash('sha512').update(bytes).digest('base64')}`;
  known.set(manifest.name, { manifest, bytes, integrity });
};
for (const name of readdirSync(join(root, 'prebuilt')))
  add(execFileSync('tar', ['-czf', '-', '-C', join(root, 'prebuilt', name), '--transform=s,^[.],package,', '.']));
for (const { tarball } of packages) add(readFileSync(join(folder, tarball)));

const server = createServer((request, response) => {
  const { pathname, origin } = new URL(decodeURIComponent(request.url), `http://${request.headers.host}`);
  const [, name, tarball] = /^\/(@x\/[^/]+)(\/-\/.+)?$/.exec(pathname) ?? [];
  const found = known.get(name);
  if (!found) {
    response.writeHead(404, { 'content-type': 'application/json' }).end('{"error":"not found"}');
    return;
  }
  if (tarball) {
    response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(found.bytes);
    return;
  }
  const { manifest, integrity } = found;
  const { version } = manifest;
  const dist = { tarball: `${origin}/${name}/-/${name.slice('@x/'.length)}-${version}.tgz`, integrity };
  const versions = { [version]: { ...manifest, _id: `${name}@${version}`, dist } };
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ _id: name, name, 'dist-tags': { latest: version }, versions }));
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/`));
process.stdin.on('end', () => process.exit()).resume();
