/** Relative links of all documents in git lead somewhere, to a heading that is there, and the paths that they name exist. */
import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { anchorOf, anchorsOf, linkProblems, ROOT } from '../../docs/site/links';

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
