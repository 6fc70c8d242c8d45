/**
 * The codebooks of IQ1, IQ2 and IQ3 as a header for kernels, from the data that the TypeScript reference reads:
 *
 *   tsx tools/kernels/codebooks.ts        writes kernels/quantized/codebooks.h
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import * as data from '../../packages/quantized/src/blocks/codebook-data';

export const CODEBOOKS = fileURLToPath(new URL('../../kernels/quantized/codebooks.h', import.meta.url));

const HEAD = `// The codebooks of IQ1, IQ2 and IQ3, written by tools/kernels/codebooks.ts: an entry is eight fields of two bits (IQ1, IQ2)
// or four of four bits (IQ3), the first value in the lowest bits.
#pragma once

namespace quant {
`;

/** The header's text. */
export function codebookHeader(): string {
  const tables = Object.entries(data)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, base64]) => {
      const bytes = Buffer.from(base64, 'base64');
      const entries = Array.from({ length: bytes.length / 2 }, (_, i) => bytes.readUInt16LE(2 * i));
      const lines: string[] = [];
      for (let i = 0; i < entries.length; i += 16) {
        lines.push(
          `    ${entries
            .slice(i, i + 16)
            .map((entry) => `0x${entry.toString(16).padStart(4, '0')},`)
            .join(' ')}`,
        );
      }
      return `\nQUANT_TABLE u16 ${name}[${entries.length}] = {\n${lines.join('\n')}\n};\n`;
    });
  return `${HEAD}${tables.join('')}\n}  // namespace quant\n`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(CODEBOOKS, codebookHeader());
