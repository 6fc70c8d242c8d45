/**
 * Relative links of all documents in git lead somewhere, to a heading that is there, and the paths that they name exist. The
 * site's sidebar has all pages, and pictures are of the figures that are written down.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { PICTURES, pictureFile } from '../../docs/pictures';
import { anchorOf, anchorsOf, linkProblems, ROOT } from '../../docs/site/links';
import { pageOf, SECTIONS, siteLink } from '../../docs/site/pages';

const documents = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], {
  cwd: ROOT,
  encoding: 'utf8',
})
  .split('\n')
  .filter((name) => name !== '' && !name.startsWith('.changeset/'));

test('documents are found', () => expect(documents.length).toBeGreaterThan(40));

test.each(documents)('%s', (document) => expect(linkProblems(document)).toEqual([]));

test('anchors are those of headings', () => {
  expect(anchorOf('What `doctor` finds, and why')).toBe('what-doctor-finds-and-why');
  expect([...anchorsOf('# A b\n\n## A b\n```\n# no\n```\n')]).toEqual(['a-b', 'a-b-1']);
});

test('the sidebar has every page', () => {
  const pages = documents.flatMap((document) => pageOf(document) ?? []).filter((page) => page !== 'index.md');
  const links = SECTIONS.flatMap(({ items }) => items.map(({ link }) => `${link.slice(1)}.md`));
  expect([...links].sort()).toEqual([...pages].sort());
});

test('links of documents become links of the site', () => {
  expect(siteLink('docs/guide/chat.md', '../../packages/core/README.md#files')).toBe('/packages/core#files');
  expect(siteLink('docs/index.md', 'guide/install.md')).toBe('/guide/install');
  expect(siteLink('docs/guide/chat.md', '../../tools/test.mjs')).toBeNull();
  expect(siteLink('docs/guide/chat.md', 'https://example.org/')).toBe('https://example.org/');
});

test.each(Object.entries(PICTURES))('%s is what tsx docs/pictures.ts makes', (name, make) => {
  expect(readFileSync(pictureFile(name), 'utf8')).toBe(make());
});
