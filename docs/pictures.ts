/**
 * Writes the pictures of docs/images/ that are made of what is in the repository, and records a terminal:
 *
 *   tsx docs/pictures.ts             the layers, the roofline, a decode step
 *   tsx docs/pictures.ts terminal    runs the command with models/tiny-tales and draws what it wrote, when it wrote it
 *
 * A test compares the first three with what this program makes.
 */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodePicture } from './site/decode-step';
import { layersPicture } from './site/layers';
import { ROOT } from './site/links';
import { rooflinePicture } from './site/roofline';
import { type Shown, terminalPicture } from './site/terminal';

/** Pictures by the names of their files. */
export const PICTURES: Record<string, () => string> = {
  'layers.svg': layersPicture,
  'roofline.svg': rooflinePicture,
  'decode-step.svg': decodePicture,
};

export const pictureFile = (name: string) => join(ROOT, 'docs/images', name);

/** What README shows. */
const RECORDED = [
  'npx candle run models/tiny-tales/tiny-tales-q8_0.gguf --prompt "Once upon a time" --max-tokens 80 --temperature 0.7 --seed 3',
];

async function record(): Promise<string> {
  const shown: Shown[] = [];
  let begin = 0;
  for (const command of RECORDED) {
    const typing = 0.02 * command.length;
    shown.push({ at: begin, text: '$ ' });
    [...command].forEach((character, i) => {
      shown.push({ at: begin + 0.02 * i, text: character, typed: true });
    });
    shown.push({ at: begin + typing, text: '\n' });
    begin = await run(command, begin + typing, shown);
    shown.push({ at: begin, text: '\n' });
  }
  return terminalPicture('candle run writes a fairy tale', joined(shown));
}

/** Runs a command of candle, and gives the moment at which it ended. */
function run(command: string, begin: number, shown: Shown[]): Promise<number> {
  const script = `exec "${process.execPath}" packages/candle/bin/candle.js ${command.replace(/^npx candle /, '')}`;
  const started = performance.now();
  const now = () => begin + (performance.now() - started) / 1000;
  return new Promise((resolve, reject) => {
    const child = spawn('sh', ['-c', script], { cwd: ROOT, env: { ...process.env, NO_COLOR: '1' } });
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => shown.push({ at: now(), text }));
    child.on('error', reject);
    child.on('close', (status) => (status === 0 ? resolve(now()) : reject(new Error(`${command}: status ${status}`))));
  });
}

/** Typed characters in words, so that the picture stays small. */
function joined(shown: readonly Shown[]): Shown[] {
  const result: Shown[] = [];
  for (const piece of shown) {
    const last = result.at(-1);
    if (piece.typed && last?.typed && !last.text.endsWith(' ')) last.text += piece.text;
    else result.push({ ...piece });
  }
  return result;
}

if (process.argv[1]?.endsWith('pictures.ts')) {
  const [what] = process.argv.slice(2);
  if (what === 'terminal') writeFileSync(pictureFile('terminal.svg'), await record());
  else for (const [name, make] of Object.entries(PICTURES)) writeFileSync(pictureFile(name), make());
}
