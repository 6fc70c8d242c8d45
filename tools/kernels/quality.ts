/**
 * `pnpm kernels:quality`: what the AMD code objects on disk cost, kernel by kernel, read from the objects' own metadata.
 * Three checks: `resources` fails on scratch memory, VGPR spills and SGPR spills above resources.ts's limits. The others
 * disassemble: `accesses` the elementwise modules, failing where the contiguous path has narrower loads or stores than
 * accesses.ts expects; `roundings` all modules, failing on products that lose the sign of zero (roundings.ts).
 */
import { parseArgs } from 'node:util';
import { ALL_MODULES, listTargets, readManifest } from '@x/kernels';
import { ELEMENTWISE, narrowAccesses, parseDisassembly } from './accesses';
import { disassemble, findDisassembler } from './disassemble';
import { type Entry, resourceFailures, table } from './resources';
import { zeroAddends } from './roundings';

const USAGE = `usage: pnpm kernels:quality [options]
  --targets LIST   AMD targets (default: every one that has code objects)
  --checks LIST    resources, accesses, roundings (default: all)
  --kernels TEXT   print only kernels whose name contains TEXT; the checks see all
  --quiet          print no table, only what fails`;

/** Targets whose accesses are checked: one of each instruction family. */
const DISASSEMBLED = ['gfx1100', 'gfx942', 'gfx90a'];
const CHECKS = ['resources', 'accesses', 'roundings'];

function entriesOf(target: string): Entry[] {
  return ALL_MODULES.flatMap((module) =>
    Object.values(module.codeObject(target)?.kernels ?? {}).map((kernel) => ({ ...kernel, target, module: module.id })),
  );
}

interface Verdict {
  subject: string;
  failures: string[];
}

const texts = new Map<string, string>();

/** The disassembly of a module, which several checks read. */
function textOf(objdump: string, target: string, file: string): string {
  const key = `${target} ${file}`;
  const text = texts.get(key) ?? disassemble(objdump, target, file);
  texts.set(key, text);
  return text;
}

function accessFailures(objdump: string, target: string): Verdict {
  const failures: string[] = [];
  let checked = 0;
  for (const module of ELEMENTWISE) {
    const entry = readManifest(target)?.modules[module];
    if (entry === undefined) {
      failures.push(`${target} ${module}: no code object; build it with \`pnpm kernels --targets ${target}\``);
      continue;
    }
    const functions = parseDisassembly(textOf(objdump, target, entry.file));
    for (const { name } of entry.kernels) {
      const found = functions.get(name);
      const problems = found === undefined ? ['not in the disassembly'] : narrowAccesses(name, found);
      if (problems.length > 0) failures.push(`${target} ${module} ${name}: ${problems.join('; ')}`);
      checked++;
    }
  }
  return { subject: `${checked} elementwise kernels of ${target}`, failures };
}

function roundingFailures(objdump: string, target: string): Verdict {
  const modules = Object.entries(readManifest(target)?.modules ?? {});
  const failures = modules.flatMap(([module, { file }]) =>
    [...zeroAddends(textOf(objdump, target, file))].map(
      ([name, count]) => `${target} ${module} ${name}: ${count} products rounded to f16 with +0 added, which loses -0`,
    ),
  );
  const checked = modules.reduce((sum, [, { kernels }]) => sum + kernels.length, 0);
  return { subject: `${checked} kernels of ${target}`, failures };
}

/** Checks of disassemblies: of a target, of which ones, and what cannot be known without. */
const DISASSEMBLING = {
  accesses: { judge: accessFailures, of: DISASSEMBLED, about: 'load and store widths' },
  roundings: { judge: roundingFailures, of: undefined, about: 'the sign of zero in products rounded to f16' },
};

function chosen(text: string | undefined, known: readonly string[], what: string): string[] {
  const names = text?.split(',') ?? [...known];
  const stranger = names.find((name) => !known.includes(name));
  if (stranger !== undefined)
    throw new Error(`${what} "${stranger}" is none of: ${known.join(', ') || '(none built)'}.`);
  return names;
}

function main(): number {
  const { values } = parseArgs({
    options: {
      targets: { type: 'string' },
      checks: { type: 'string' },
      kernels: { type: 'string', default: '' },
      quiet: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const built = listTargets().filter((target) => target.startsWith('gfx'));
  const targets = chosen(values.targets, built, 'target');
  const checks = chosen(values.checks, CHECKS, 'check');
  if (targets.length === 0) throw new Error('no AMD code objects: run `pnpm kernels --targets gfx1100,gfx90a`.');

  const entries = targets.flatMap(entriesOf);
  if (!values.quiet) console.log(table(entries.filter(({ name }) => name.includes(values.kernels!))));
  let failed = 0;
  const verdict = (check: string, subject: string, failures: string[]) => {
    for (const line of failures) console.log(`FAIL ${check}: ${line}`);
    console.log(`${check}: ${subject}, ${failures.length} fail`);
    failed += failures.length;
  };
  if (checks.includes('resources')) {
    verdict('resources', `${entries.length} kernels of ${targets.join(' ')}`, resourceFailures(entries));
  }
  const objdump = findDisassembler();
  for (const [check, { judge, of = targets, about }] of Object.entries(DISASSEMBLING)) {
    if (!checks.includes(check)) continue;
    const some = targets.filter((target) => of.includes(target));
    if (objdump === undefined || some.length === 0) {
      const why =
        objdump === undefined ? 'no llvm-objdump beside clang (apt install llvm-22)' : 'no target to disassemble';
      console.log(`${check}: NOT CHECKED, ${why}; nothing can be said about ${about}`);
      // Asked for by name, a check that cannot be made is a failure.
      if (values.checks !== undefined) failed++;
    } else {
      for (const target of some) {
        const { subject, failures } = judge(objdump, target);
        verdict(check, subject, failures);
      }
    }
  }
  return failed === 0 ? 0 : 1;
}

try {
  process.exitCode = main();
} catch (error) {
  console.error(`kernels:quality: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 2;
}
