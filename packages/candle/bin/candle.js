#!/usr/bin/env node
// Before anything is loaded: an older Node would end somewhere inside, with words that help nobody.
const [major, minor] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`candle: Node ${process.versions.node} is too old: install Node 20.19 or newer.`);
  process.exit(1);
}
const { keepCompiled } = await import('./compile-cache.js');
keepCompiled();
await import('../dist/cli.js');
