// Steps of the set-up: run once for given inputs, remembered by a hash under .cache/setup.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { delimiter, dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const stamps = join(root, '.cache/setup');
const SKIPPED = new Set(['node_modules', 'dist', 'build', 'objects', 'sources', 'prebuilds', '.turbo']);

// Progress goes to stderr: stdout belongs to the program that follows.
export function say(line) {
  process.stderr.write(`[setup] ${line}\n`);
}

// Runs `action` unless it already ran for the same inputs and its outputs are still there.
export async function step(name, { files = [], text = '', outputs = [] }, label, action) {
  const hash = hashOf(files, text);
  const stamp = join(stamps, name);
  const done = existsSync(stamp) && readFileSync(stamp, 'utf8') === hash;
  if (done && outputs.every((output) => existsSync(join(root, relativeTo(output))))) return;
  say(`${label} ...`);
  const started = Date.now();
  rmSync(stamp, { force: true });
  await action();
  mkdirSync(stamps, { recursive: true });
  writeFileSync(stamp, hash);
  say(`${label}: ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

const running = new Set();

// Runs a program in the repository's root with its output on stderr; ends the set-up, and what runs beside it, when it fails.
export async function run(command, args, env = {}) {
  // turbo looks for the workspace's package manager on the path.
  const path = `${join(root, '.cache/tools/node_modules/.bin')}${delimiter}${process.env.PATH}`;
  const why = await new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd: root,
      stdio: ['ignore', process.stderr, process.stderr],
      env: { ...process.env, PATH: path, ...env },
    });
    running.add(child);
    child.on('error', (error) => resolve(error.message));
    child.on('close', (status, signal) => {
      running.delete(child);
      resolve(status === 0 ? undefined : signal ? `ended by ${signal}` : `exit status ${status}`);
    });
  });
  if (why === undefined) return;
  const shown = [command, ...args].map((part) => relativeTo(part)).join(' ');
  say(`failed: ${shown} (${why})`);
  for (const child of running) child.kill();
  process.exit(1);
}

function relativeTo(path) {
  return path.startsWith(root) ? relative(root, path) : path;
}

function hashOf(patterns, text) {
  const hash = createHash('sha256').update(text);
  for (const file of patterns.flatMap(expand).sort()) hash.update(`\0${file}\0`).update(readFileSync(join(root, file)));
  return hash.digest('hex');
}

// The few glob forms used here: `dir/**`, `dir/*/rest`, plain paths.
function expand(pattern) {
  const star = pattern.indexOf('*');
  if (star < 0) return existsSync(join(root, pattern)) ? [pattern] : [];
  const base = pattern.slice(0, star);
  if (!existsSync(join(root, base))) return [];
  if (pattern.startsWith('**', star)) return walk(base.replace(/\/$/, ''));
  const rest = pattern.slice(star + 1);
  return readdirSync(join(root, base)).flatMap((entry) => expand(`${base}${entry}${rest}`));
}

function walk(directory) {
  if (!statSync(join(root, directory)).isDirectory()) return [directory];
  return readdirSync(join(root, directory), { withFileTypes: true })
    .filter((entry) => !SKIPPED.has(entry.name))
    .flatMap((entry) => (entry.isDirectory() ? walk(`${directory}/${entry.name}`) : [`${directory}/${entry.name}`]));
}
