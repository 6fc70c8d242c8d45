/** Where the sources are, for npm's pages and its provenance: what package.json says, else what GitHub tells its workflows. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './prebuilt';

export interface Address {
  repository?: { type: 'git'; url: string };
  homepage?: string;
  bugs?: { url: string };
}

/** A team that releases its own copy names nothing: the workflow's address is that copy's, as provenance wants it. */
export function address(env: NodeJS.ProcessEnv = process.env, folder = ROOT): Address {
  const { repository, homepage, bugs } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as Address;
  const { GITHUB_SERVER_URL: server, GITHUB_REPOSITORY: name } = env;
  const page = server && name ? `${server}/${name}` : undefined;
  const found: Address = {
    repository: repository ?? (page ? { type: 'git', url: `git+${page}.git` } : undefined),
    homepage: homepage ?? (page ? `${page}#readme` : undefined),
    bugs: bugs ?? (page ? { url: `${page}/issues` } : undefined),
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}
