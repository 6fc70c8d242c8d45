/** The reference: what every published package exports, by typedoc, a module a package. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { Application, ReflectionKind } from 'typedoc';
import { ROOT } from './links';

interface Entry {
  file: string;
  /** @x/core/files */
  name: string;
}

/** The entry of every published package, and those beside it. */
function entries(): Entry[] {
  return readdirSync(join(ROOT, 'packages')).flatMap((folder) => {
    const manifest = JSON.parse(readFileSync(join(ROOT, 'packages', folder, 'package.json'), 'utf8'));
    if (manifest.private) return [];
    return Object.keys(manifest.exports)
      .filter((entry) => entry !== './package.json')
      .map((entry) => ({
        file: join(ROOT, 'packages', folder, 'src', entry.slice(1), 'index.ts'),
        name: `${manifest.name}${entry.slice(1)}`,
      }));
  });
}

export async function buildReference(out: string): Promise<void> {
  const all = entries();
  const absent = all.filter(({ file }) => !existsSync(file)).map(({ file }) => relative(ROOT, file));
  if (absent.length > 0) throw new Error(`no source of what packages export: ${absent.join(', ')}`);
  const app = await Application.bootstrap({
    entryPoints: all.map(({ file }) => file),
    tsconfig: join(ROOT, 'tsconfig.json'),
    name: 'candle for TypeScript',
    readme: 'none',
    disableSources: true,
    excludePrivate: true,
    excludeInternal: true,
    excludeExternals: true,
    hideGenerator: true,
    // Types are checked by the check `types`.
    skipErrorChecking: true,
    validation: { invalidLink: true, notExported: false, notDocumented: false },
    navigationLinks: { Guide: '/guide/install' },
    logLevel: 'Warn',
  });
  const project = await app.convert();
  if (!project) throw new Error('typedoc made nothing of the sources');
  for (const module of project.getReflectionsByKind(ReflectionKind.Module)) {
    const file = project.getSymbolIdFromReflection(module)?.fileName;
    const entry = all.find((one) => file !== undefined && one.file === join(file));
    if (!entry) throw new Error(`typedoc names a module ${module.name}, which is no package`);
    module.name = entry.name;
  }
  app.validate(project);
  await app.generateDocs(project, out);
  if (app.logger.hasErrors()) throw new Error('typedoc found what is above');
}
