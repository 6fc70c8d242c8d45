import { readFileSync } from 'node:fs';
import { ARCHITECTURES, ENCODERS } from '@x/transformers';
import { describe, expect, it } from 'vitest';
import { rowsOf } from '../../docs/site/tables';
import { PAGE, tables, withTables } from './page';
import { ENCODER_MODELS, PUBLISHED } from './published';

const first = ({ architectures: [name] }: { architectures: readonly [string, ...string[]] }) => name;

describe('the page of models', () => {
  it('says what the code does (tsx tools/models/page.ts --write)', async () => {
    const page = readFileSync(PAGE, 'utf8');
    expect(withTables(page, await tables())).toBe(page);
  });

  it('has a row of each architecture and each encoder that is registered', () => {
    const rows = (heading: string, column: string) =>
      rowsOf('docs/models.md', heading, ['`config.json`', column]).map((row) => row['`config.json`']);
    const shown = ARCHITECTURES.map(first).map((name) => (name === 'gemma_embedding' ? 'gemma3_text' : name));
    expect(rows('Models that write', 'GGUF')).toEqual(shown.map((name) => `\`${name}\``));
    expect(rows('Models that read', 'GGUF')).toEqual(ENCODERS.map((encoder) => `\`${first(encoder)}\``));
    expect(new Set(Object.keys(PUBLISHED))).toEqual(new Set(ARCHITECTURES.map(first)));
    expect(new Set(Object.keys(ENCODER_MODELS))).toEqual(new Set(ENCODERS.map(first)));
  });

  it('tells layers that carry a state and experts apart', async () => {
    const { parts, models } = await tables();
    const row = (table: string, name: string) => table.split('\n').find((line) => line.startsWith(`| \`${name}\``));
    expect(row(parts, 'qwen3')).toBe('| `qwen3` | all | yes | all |');
    expect(row(parts, 'mixtral')).toBe('| `mixtral` | all | yes | but experts |');
    expect(row(parts, 'mamba2')).toBe('| `mamba2` | embedding and head only | no | all |');
    expect(row(models, 'lfm2')).toContain('| no | no | no |');
    expect(() => withTables('# Models\n', { parts })).toThrow('docs/models.md has no <!-- table: parts -->');
  });
});
