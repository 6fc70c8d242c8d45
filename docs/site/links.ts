/** Links of Markdown documents: where they lead, and what a heading's anchor is. */
import { existsSync, readFileSync } from 'node:fs';
import { join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A heading's anchor, as code hosts make it: letters, digits, - and _ stay, spaces become -. */
export function anchorOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replace(/\s/g, '-');
}

/** Where a relative link leads, from the repository's root; undefined for links to elsewhere. */
export function targetOf(document: string, link: string): { path: string; anchor: string } | undefined {
  if (/^[a-z]+:|^\/\//i.test(link)) return undefined;
  const [file, anchor = ''] = link.split('#');
  const path = file === '' ? document : file.startsWith('/') ? file.slice(1) : join(document, '..', decodeURI(file));
  return { path: normalize(path), anchor };
}

/** A document without its code, which is not looked through for links. */
function prose(text: string): string {
  return text.replace(/^```[\s\S]*?^```$/gm, '');
}

/** The anchors of a document, numbered where headings are alike. */
export function anchorsOf(text: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, heading] of prose(text).matchAll(/^#{1,6} (.+)$/gm)) {
    const anchor = anchorOf(heading);
    let name = anchor;
    for (let i = 1; anchors.has(name); i++) name = `${anchor}-${i}`;
    anchors.add(name);
  }
  return anchors;
}

/** What is wrong with the relative links of a document, and with the paths of the project that it names. */
export function linkProblems(document: string): string[] {
  const text = prose(readFileSync(join(ROOT, document), 'utf8'));
  const problems: string[] = [];
  for (const [, link] of text.replace(/`[^`\n]*`/g, '``').matchAll(/\]\(([^)\s]+)(?: "[^"]*")?\)/g)) {
    const target = targetOf(document, link);
    if (!target) continue;
    if (!existsSync(join(ROOT, target.path))) problems.push(`${document}: there is no ${target.path} (${link})`);
    else if (target.anchor && !anchorsOf(readFileSync(join(ROOT, target.path), 'utf8')).has(target.anchor))
      problems.push(`${document}: ${target.path} has no heading #${target.anchor}`);
  }
  // `packages/core/src/js/`; names in capitals stand for something.
  for (const [, path] of text.matchAll(/`((?:packages|tools|kernels|docs|examples|models)\/[\w./-]+)`/g)) {
    if (!/[A-Z]{3,}(?!\.md)/.test(path) && ![path, join(document, '..', path)].some((at) => existsSync(join(ROOT, at))))
      problems.push(`${document}: there is no ${path}`);
  }
  return problems;
}
