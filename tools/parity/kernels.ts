/** candle's kernel names and parameter types against the symbols of the code objects on disk. */
import { ALL_MODULES, type KernelInfo, listTargets, parseCodeObject } from '@x/kernels';
import { hasModule, isCubin, makeTarget, type Target } from '../kernels/targets';
import type { CandleKernel } from './candle';
import { type TestCase, testsNaming, where } from './report';
import type { Row } from './table';

export type TargetKind = Target['kind'];

/** One target's kernels, by module. */
export interface BuiltTarget {
  target: string;
  kind: TargetKind;
  modules: Record<string, Record<string, Pick<KernelInfo, 'params'>>>;
}

/** Parses every code object on disk that its manifest vouches for; the manifest's own kernel list is not used. */
export function readTargets(): BuiltTarget[] {
  // Machine code of PTX has what that has.
  const targets = listTargets().filter((target) => !isCubin(target));
  return targets.map((target) => {
    const objects = ALL_MODULES.map((module) => [module.id, module.codeObject(target)] as const);
    const modules = objects.flatMap(([id, object]) =>
      object === undefined ? [] : [[id, parseCodeObject(object.bytes).kernels] as const],
    );
    return { target, kind: makeTarget(target).kind, modules: Object.fromEntries(modules) };
  });
}

/** A row is ok when every target on disk that is to have the module has the kernel there, with candle's parameter types. */
export function kernelRows(wanted: CandleKernel[], targets: BuiltTarget[], tests: TestCase[]): Row[] {
  return wanted.map(({ module, name, params }) => {
    const expected = params.join(' ');
    const absent: string[] = [];
    const different: string[] = [];
    const kinds = new Map<TargetKind, boolean>();
    for (const { target, kind, modules } of targets) {
      if (!hasModule(makeTarget(target), module)) continue;
      const found = modules[module]?.[name]?.params.join(' ');
      if (found === undefined) absent.push(target);
      else if (found !== expected) different.push(`${target} (${found})`);
      kinds.set(kind, (kinds.get(kind) ?? true) && found === expected);
    }
    const good = [...kinds].filter(([, ok]) => ok).map(([kind]) => kind);
    const ours = [
      ...(good.length > 0 ? [good.join(' ')] : []),
      ...(absent.length > 0 ? [`not in ${absent.join(' ')}`] : []),
      ...(different.length > 0 ? [`other parameters in ${different.join(', ')}, candle: ${expected}`] : []),
    ].join('; ');
    const status = targets.length === 0 || absent.length > 0 ? 'missing' : different.length > 0 ? 'differs' : 'ok';
    const item = `${module} ${name}`;
    return { item, ours: ours || 'nothing built', status, tested: where(testsNaming(tests, name)) };
  });
}

/** `host: x86-64-v3; amdgcn: gfx1100 gfx90a; nvptx: not built`. */
export function describeTargets(targets: BuiltTarget[]): string {
  const of = (kind: TargetKind) => targets.filter((entry) => entry.kind === kind).map(({ target }) => target);
  return (['host', 'amdgcn', 'nvptx'] as const)
    .map((kind) => `${kind}: ${of(kind).join(' ') || 'not built'}`)
    .join('; ');
}
