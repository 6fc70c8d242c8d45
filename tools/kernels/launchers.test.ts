import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { LAUNCHERS, launcherFiles } from './launchers';

describe('launchers', () => {
  it('are those of the declared kernels', () => {
    const files = launcherFiles();
    const changed = [...files].filter(([file, text]) => readFileSync(join(LAUNCHERS, file), 'utf8') !== text);
    expect(
      changed.map(([file]) => file),
      'kernels were declared otherwise: run tsx tools/kernels/launchers.ts',
    ).toEqual([]);
    expect(readdirSync(LAUNCHERS).sort()).toEqual([...files.keys(), 'launcher.ts'].sort());
  });
});
