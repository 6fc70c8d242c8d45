import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { address } from './address';

const folder = mkdtempSync(join(tmpdir(), 'x-address-'));
const workflow = { GITHUB_SERVER_URL: 'https://git.example', GITHUB_REPOSITORY: 'team/candle' };
const written = (manifest: object) => writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test('is what a workflow of GitHub says', () => {
  written({});
  expect(address(workflow, folder)).toEqual({
    repository: { type: 'git', url: 'git+https://git.example/team/candle.git' },
    homepage: 'https://git.example/team/candle#readme',
    bugs: { url: 'https://git.example/team/candle/issues' },
  });
});

test('is what package.json says, where it says it', () => {
  const own = { repository: { type: 'git', url: 'git+https://own.example/a.git' }, homepage: 'https://own.example' };
  written(own);
  expect(address(workflow, folder)).toMatchObject(own);
  expect(address({}, folder)).toEqual(own);
});

test('is nothing where nobody says it', () => {
  written({});
  expect(address({ GITHUB_REPOSITORY: 'team/candle' }, folder)).toEqual({});
});
