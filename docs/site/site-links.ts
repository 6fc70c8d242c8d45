/** Links of the built site, by its HTML: each leads to a file, and to an element with that id. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

export function deadLinks(dist: string): string[] {
  const pages = readdirSync(dist, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.html'))
    .map((name) => join(dist, name));
  const html = new Map(pages.map((page) => [page, readFileSync(page, 'utf8')]));
  const ids = new Map<string, Set<string>>();
  const idsOf = (page: string) => {
    const known =
      ids.get(page) ?? new Set([...html.get(page)!.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => decoded(id)));
    ids.set(page, known);
    return known;
  };
  const problems = new Set<string>();
  for (const [page, text] of html) {
    for (const [, link] of text.matchAll(/\s(?:href|src)="([^"]*)"/g)) {
      if (/^[a-z]+:|^\/\//i.test(link)) continue;
      const [path, anchor] = decoded(link).split('#');
      const target = path === '' ? page : fileOf(path.startsWith('/') ? join(dist, path) : join(dirname(page), path));
      if (!target) problems.add(`${relative(dist, page)}: ${link} leads nowhere`);
      else if (anchor && html.has(target) && !idsOf(target).has(anchor))
        problems.add(`${relative(dist, page)}: ${link}: there is no #${anchor}`);
    }
  }
  return [...problems];
}

/** What a server gives for a path: the file, the page without its ending, or a folder's index. */
function fileOf(path: string): string | undefined {
  const bare = path.replace(/[?].*$/, '');
  return [bare, `${bare}.html`, join(bare, 'index.html')].find((file) => existsSync(file) && statSync(file).isFile());
}

function decoded(text: string): string {
  return decodeURIComponent(text.replace(/&amp;/g, '&').replace(/&quot;/g, '"'));
}
