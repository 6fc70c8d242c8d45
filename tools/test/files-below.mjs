import { readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Paths of the repository's own files in a folder and the folders below: packages link to a hundred times as many in node_modules. */
export function filesBelow(folder) {
  const entries = readdirSync(folder, { withFileTypes: true }).filter(
    ({ name }) => !name.startsWith('.') && name !== 'node_modules' && name !== 'dist',
  );
  return entries.flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}
