/** The `candle` command as a shell sees it: what goes to which stream, exit statuses, signals, and wrong command lines. */
import { spawn } from 'node:child_process';
import { copyFileSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Device, Tensor } from '@x/core';
import { SafetensorsFile, saveSafetensors } from '@x/core/files';
import { afterAll, describe, expect, test } from 'vitest';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const TINY = join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf');
const folder = mkdtempSync(join(tmpdir(), 'candle-cli-'));
const command = bundleCommand();
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface Ended {
  status: number | null;
  signal: NodeJS.Signals | null;
  out: string;
  err: string;
}

interface Running {
  kill(signal: NodeJS.Signals): void;
  closeOutput(): void;
  /** Resolves when the command has read most of it. */
  write(text: string): Promise<void>;
  /** Resolves when stdout has this many characters. */
  seen(length: number): Promise<void>;
  ended: Promise<Ended>;
}

/** @param input standard input; undefined leaves the pipe open and empty */
function start(args: string[], input?: string | Buffer, env: Record<string, string> = {}): Running {
  const clean = { ...process.env, ...env };
  for (const name of ['FORCE_COLOR', 'NO_COLOR']) if (!(name in env)) delete clean[name];
  const child = spawn(process.execPath, [command, ...args], {
    cwd: root,
    env: clean,
  });
  if (input !== undefined) child.stdin.end(input);
  let [out, err] = ['', ''];
  const waiting: (() => void)[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
    for (const check of waiting) check();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text;
  });
  const ended = new Promise<Ended>((resolve) =>
    child.on('close', (status, signal) => {
      for (const check of waiting) check();
      resolve({ status, signal, out, err });
    }),
  );
  return {
    kill: (signal) => void child.kill(signal),
    closeOutput: () => child.stdout.destroy(),
    write: (text) => new Promise((resolve) => child.stdin.write(text, () => resolve())),
    seen: (length) =>
      new Promise((resolve) => {
        const check = () => (out.length >= length || child.exitCode !== null) && resolve();
        waiting.push(check);
        check();
      }),
    ended,
  };
}

const run = (args: string[], input: string | Buffer = '', env: Record<string, string> = {}) =>
  start(args, input, env).ended;
const greedy = ['--device', 'cpu', '--temperature', '0'];
const oneLine = /^error [A-Z0-9_]+: [^\n]+\n$/;

describe('run', { timeout: 300_000 }, () => {
  test('the text goes to stdout, everything else to stderr', async () => {
    const { status, out, err } = await run(['run', TINY, ...greedy, '-n', '8']);
    expect(status).toBe(0);
    expect(out).toBe('Once upon a time there lived a king who had a daughter\n');
    expect(err).toMatch(/8 tokens at [\d.]+ tokens\/s/);
    expect(`${out}${err}`).not.toContain('\x1b');
  });

  test('drafts, of the text or of another model, leave the text as it is and are counted', async () => {
    const line = ['run', TINY, ...greedy, '-n', '24', '-p', 'The king, the queen and the king, the', '--json'];
    const { text } = JSON.parse((await run(line)).out);
    for (const source of ['lookup', TINY]) {
      const { status, out } = await run([...line, '--speculative', source, '--draft-tokens', '5']);
      expect(status).toBe(0);
      expect(JSON.parse(out)).toMatchObject({ text, tokens: 24 });
      const { steps, drafted, accepted } = JSON.parse(out).speculative;
      expect(steps + accepted).toBe(23);
      expect(drafted).toBeGreaterThanOrEqual(accepted);
      // Three drafts in the first step, five in the next ones.
      if (source === TINY) expect({ steps, accepted }).toEqual({ steps: 5, accepted: 18 });
    }
    const { err } = await run(['run', TINY, ...greedy, '-n', '8', '--speculative', TINY]);
    expect(err).toMatch(/8 tokens at [\d.]+ tokens\/s · 5 of 5 drafts accepted/);
    for (const wrong of [
      ['--draft-tokens', '3'],
      ['--speculative', 'lookup', '--draft-tokens', '16'],
    ]) {
      const refused = await run(['run', TINY, ...greedy, ...wrong]);
      expect([refused.status, refused.out]).toEqual([2, '']);
    }
    const missing = await run(['run', TINY, ...greedy, '--speculative', 'nowhere.gguf']);
    expect([missing.status, missing.err]).toEqual([1, expect.stringMatching(/^error FILE_NOT_FOUND: nowhere.gguf/)]);
  });

  test('- is standard input, less its last newline; without it standard input is left alone', async () => {
    const { out, status } = await run(['run', TINY, ...greedy, '-n', '2', '-p', '-', '--json'], 'The old\nking\r\n');
    expect(status).toBe(0);
    expect(JSON.parse(out).prompt).toBe('The old\nking');
    // An open pipe that nothing comes through.
    const other = await start(['run', TINY, ...greedy, '-n', '2', '--json']).ended;
    expect(JSON.parse(other.out).prompt).toBe('Once upon a time');
    for (const bad of ['', '\n', Buffer.from([0xff, 0xfe, 0x41])]) {
      const refused = await run(['run', TINY, '-p', '-'], bad);
      expect([refused.status, refused.out]).toEqual([2, '']);
      expect(refused.err).toMatch(oneLine);
    }
  });

  test('--no-graphs and --no-fused change how a text is computed, not the text', async () => {
    const line = ['run', TINY, ...greedy, '-n', '6', '--json'];
    const usual = JSON.parse((await run(line)).out).tokenIds;
    const plain = await run([...line, '--no-graphs', '--no-fused']);
    expect([plain.status, JSON.parse(plain.out).tokenIds]).toEqual([0, usual]);
    const sizes = ['--prompt', '4', '--gen', '8', '--repeat', '1', '--json'];
    const stepOf = async (...flags: string[]) =>
      JSON.parse((await run(['bench', TINY, '-d', 'cpu', ...sizes, ...flags])).out).runs[0];
    const [captured, enqueued] = [await stepOf(), await stepOf('--no-graphs', '--no-fused')];
    expect(captured.launchesPerStep).toBeLessThan(captured.kernelsPerStep / 2);
    expect(enqueued.launchesPerStep).toBe(enqueued.kernelsPerStep);
    expect(enqueued.kernelsPerStep).toBeGreaterThan(1.5 * captured.kernelsPerStep);
  });

  test('--prompt-cache keeps the prompt, takes it from there, and says what is wrong with the file', async () => {
    const file = join(folder, 'kept.prompt');
    const prompt = 'Once upon a time there lived a king. '.repeat(6);
    const line = ['run', TINY, ...greedy, '-n', '3', '--json', '--prompt-cache', file];
    const first = await run([...line, '-p', prompt]);
    const { promptTokens, reusedTokens, text } = JSON.parse(first.out);
    expect([reusedTokens, promptTokens > 40]).toEqual([0, true]);
    expect(first.err).toMatch(/^\d+ tokens of the prompt are kept in .*kept\.prompt\n$/);
    const again = await run([...line, '-p', prompt]);
    expect([JSON.parse(again.out).text, again.err]).toEqual([text, '']);
    expect(JSON.parse(again.out).reusedTokens).toBe(promptTokens - 1 - ((promptTokens - 1) % 32));
    const bytes = readFileSync(file);
    writeFileSync(file, bytes.subarray(0, bytes.length - 9));
    const damaged = await run([...line, '-p', prompt]);
    expect([damaged.status, JSON.parse(damaged.out).error.code]).toEqual([1, expect.stringMatching(/^FILE_/)]);
    expect(readFileSync(file).length).toBe(bytes.length - 9);
    expect(JSON.parse(damaged.out).error.message).toMatch(/Or delete it, and the prompt is kept anew\.$/);
    const nowhere = await run(['run', TINY, ...greedy, '-n', '1', '--json', '--prompt-cache', join(folder, 'no/such')]);
    expect([nowhere.status, JSON.parse(nowhere.out).error]).toEqual([
      1,
      { code: 'FILE_UNWRITABLE', message: expect.stringContaining('ENOENT') },
    ]);
    const directory = await run([...line.slice(0, -1), folder, '-p', prompt]);
    expect(directory.status).toBe(1);
    const short = await run(['run', TINY, ...greedy, '-n', '1', '--prompt-cache', join(folder, 'short.prompt')]);
    expect([short.status, short.err]).toEqual([0, expect.stringMatching(/5 tokens are not kept: more than 32 are/)]);
  });

  test('a second --lora, and a model without a name, are refused', async () => {
    const two = await run(['run', TINY, ...greedy, '--lora', 'a', '--lora', 'b']);
    expect([two.status, two.err]).toEqual([2, expect.stringMatching(/Give one adapter/)]);
    for (const command of [
      ['inspect', ''],
      ['quantize', '', 'x.gguf', '-t', 'q8_0'],
      ['run', ''],
    ]) {
      const { status, err } = await run(command);
      expect([status, err]).toEqual([2, expect.stringMatching(/name of the model is empty/)]);
    }
  });

  test('an error behind the prompt has a line of its own', async () => {
    const damaged = join(folder, 'damaged');
    cpSync(join(root, 'models/tiny/llama'), damaged, { recursive: true });
    const weights = readFileSync(join(damaged, 'model.safetensors'));
    const length = Number(weights.readBigUInt64LE(0));
    const [from, to] = JSON.parse(weights.toString('utf8', 8, 8 + length))['model.norm.weight'].data_offsets;
    writeFileSync(join(damaged, 'model.safetensors'), weights.fill(0xff, 8 + length + from, 8 + length + to));
    const { status, out, err } = await run(['run', damaged, ...greedy, '-p', 'Once']);
    expect([status, out]).toEqual([1, 'Once\n']);
    expect(err).toMatch(/^error BAD_LOGITS: /);
  });

  test('says when the context is full', async () => {
    const full = ['run', TINY, ...greedy, '-n', '100', '--max-context', '12'];
    const { status, out, err } = await run(full);
    expect([status, out.startsWith('Once upon')]).toEqual([0, true]);
    expect(err).toMatch(/context of 12 tokens is full; .*--max-context, up to 512/);
    const json = JSON.parse((await run([...full, '--json'])).out);
    expect(json).toMatchObject({ finishReason: 'context', tokens: 8, seed: expect.any(Number) });
  });

  test('ends quietly when nobody reads on', async () => {
    const child = start(['run', TINY, '--device', 'cpu', '-n', '490', '--repetition-penalty', '1.2']);
    await child.seen(30);
    child.closeOutput();
    const { status, err } = await child.ended;
    expect([status, err]).toEqual([141, '']);
  });

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s ends with status %i: in the text and while reading the prompt', async (signal, status) => {
    const long = ['run', TINY, '--device', 'js', '-t', '0', '-n', '490'];
    const child = start(long);
    await child.seen(40);
    child.kill(signal);
    const text = await child.ended;
    expect([text.status, text.signal]).toEqual([status, null]);
    expect(text.out).toMatch(/^Once upon a time .*\n$/);
    expect(text.err).toMatch(/interrupted\n[\s\S]*tokens\/s/);

    const waiting = start(['run', TINY, '-p', '-', '--json']);
    // More than a pipe holds, so that somebody reads.
    await waiting.write('tale '.repeat(200_000));
    waiting.kill(signal);
    const early = await waiting.ended;
    expect([early.status, early.signal]).toEqual([status, null]);
    expect(JSON.parse(early.out).error).toEqual({ code: 'INTERRUPTED', message: `interrupted by ${signal}` });
  });

  test('a second Ctrl-C ends it at once', async () => {
    const child = start(['run', TINY, '--device', 'js', '-t', '0', '-n', '490']);
    await child.seen(40);
    child.kill('SIGINT');
    child.kill('SIGINT');
    const { status, signal } = await child.ended;
    // The first may have ended it already.
    expect(status === 130 || signal === 'SIGINT').toBe(true);
  });

  test('FORCE_COLOR and NO_COLOR hold for both streams', async () => {
    const style = async (env: Record<string, string>) => {
      const { out, err } = await run(['run', TINY, ...greedy, '-n', '1'], '', env);
      const failed = await run(['inspect', 'nowhere'], '', env);
      return [out, err, failed.err].map((text) => text.includes('\x1b['));
    };
    const cases: [Record<string, string>, boolean][] = [
      [{ FORCE_COLOR: '3' }, true],
      [{ FORCE_COLOR: '1', NO_COLOR: '1' }, true],
      [{ FORCE_COLOR: '0', NO_COLOR: '' }, false],
      [{ NO_COLOR: '1' }, false],
    ];
    for (const [env, coloured] of cases) expect(await style(env)).toEqual([coloured, coloured, coloured]);
  });
});

describe('wrong command lines', { timeout: 300_000 }, () => {
  // option-values.test.ts has more values.
  test('run with wrong values', async () => {
    const values: [string, string][] = [
      ['--max-tokens', '1e99'],
      ['--max-tokens', '-1'],
      ['--temperature', 'NaN'],
      ['--temperature', '1e99'],
      ['--top-k', '-1'],
      ['--top-p', '1.1'],
      ['--min-p', '2'],
      ['--seed', '1.5'],
      ['--repetition-penalty', '0'],
      ['--max-context', '0'],
      ['--prompt', ''],
      ['--stop', ''],
    ];
    for (const [name, value] of values) {
      const { status, out, err } = await run(['run', TINY, name, value]);
      expect([name, status, out]).toEqual([name, 2, '']);
      expect(err).toMatch(oneLine);
      expect(err).toContain(name);
    }
  });

  test('unknown commands, options and arguments', async () => {
    const lines = [
      ['fly'],
      ['run'],
      ['run', TINY, '--fly'],
      ['run', TINY, 'another'],
      ['devices', 'cpu'],
      ['doctor', '--fly'],
      ['inspect'],
      ['quantize', TINY],
      ['quantize', TINY, 'out.gguf'],
      ['quantize', TINY, 'out.gguf', '--type', 'q99'],
      ['quantize', TINY, 'out.gguf', '--type', 'q4_0', '--threads', '0'],
    ];
    for (const line of lines) {
      const { status, out, err } = await run(line);
      expect([line, status, out]).toEqual([line, 2, '']);
      expect(err).toMatch(oneLine);
    }
    const { status, out, err } = await run(['run', TINY, '--seed', 'x', '--json']);
    expect([status, err]).toEqual([2, '']);
    expect(JSON.parse(out).error.code).toBe('USAGE');
    for (const good of [['--help'], ['--version'], ['run', '--help']]) expect((await run(good)).status).toBe(0);
  });
});

describe('what is no model', { timeout: 300_000 }, () => {
  const empty = join(folder, 'empty');
  const several = join(folder, 'several');
  const cut = join(folder, 'cut.gguf');
  const headless = join(folder, 'headless.gguf');
  const nothing = join(folder, 'nothing.gguf');
  for (const directory of [empty, several]) mkdirSync(directory);
  for (const name of ['a.gguf', 'b.gguf']) copyFileSync(TINY, join(several, name));
  writeFileSync(cut, readFileSync(TINY).subarray(0, 5_000_000));
  writeFileSync(headless, readFileSync(TINY).subarray(0, 100));
  writeFileSync(nothing, '');

  test.each(['run', 'inspect', 'quantize'])('%s says so in one line', async (command) => {
    for (const path of [join(folder, 'nowhere'), empty, cut, headless, nothing, '/dev/null', several]) {
      const more = command === 'quantize' ? [join(folder, 'out.gguf'), '--type', 'q4_0', '--allow-requantize'] : [];
      const { status, out, err } = await run([command, path, ...more]);
      expect([path, status, out]).toEqual([path, 1, '']);
      expect(err).toMatch(oneLine);
      expect(err).toContain(path);
    }
  });
});

describe('bench', { timeout: 300_000 }, () => {
  test('measures prompts and decoding, alone and together, and writes a report without paths', async () => {
    const report = join(folder, 'report.json');
    const sizes = ['--prompt', '8', '--gen', '4', '--batch', '1,2', '--context', '16', '--repeat', '1'];
    const { status, out } = await run(['bench', TINY, '-d', 'cpu', ...sizes, '--json', '--report', report]);
    expect(status).toBe(0);
    const { runs, weightBytes, loadSeconds, copyBytesPerSecond } = JSON.parse(out);
    expect(
      runs.map((each: { sequences: number; promptTokens: number }) => [each.sequences, each.promptTokens]),
    ).toEqual([
      [1, 8],
      [2, 8],
      [1, 16],
    ]);
    for (const each of runs) {
      expect(each.decodeTokensPerSecond.median).toBeGreaterThan(0);
      expect(each.prefillTokensPerSecond.median).toBeGreaterThan(0);
      // A row of the table is read, which is the head as well; tables of rotations are not counted.
      expect(each.weightBytesPerStep / weightBytes).toBeCloseTo(1, 1);
      expect(each.weightBytesPerStep).toBeLessThan(weightBytes);
      expect(each.cacheBytesPerStep).toBeGreaterThan(0);
      // Steps are graphs, of which the first runs of a shape are none.
      expect(each.kernelsPerStep).toBeGreaterThan(20);
      expect(each.launchesPerStep).toBeLessThanOrEqual(each.kernelsPerStep);
    }
    expect(Math.min(loadSeconds, copyBytesPerSecond)).toBeGreaterThan(0);
    const text = readFileSync(report, 'utf8');
    expect(JSON.parse(text).runs).toEqual(runs);
    expect(text).not.toContain('tiny-tales');
  });

  test('fits its own sizes to a short context, and says which of those asked for do not fit', async () => {
    const { status, out, err } = await run(['bench', TINY, '-d', 'cpu', '--gen', '504', '--repeat', '1', '--json']);
    expect([status, err]).toEqual([0, '']);
    expect(JSON.parse(out).runs[0]).toMatchObject({ promptTokens: 8, generatedTokens: 504 });
    const refused = await run(['bench', TINY, '-d', 'cpu', '--prompt', '500']);
    expect(refused).toMatchObject({ status: 2, out: '' });
    expect(refused.err).toBe(
      "error USAGE: --prompt 500 and --gen 128 take 628 positions, and the model's context has 512; give a --prompt of at most 384, or a smaller --gen.\n",
    );
  });

  test('compares with drafts, on prompts of a text', async () => {
    const text = join(folder, 'prompts.txt');
    writeFileSync(text, 'The king and the queen went to the sea. '.repeat(8));
    const small = ['--prompt', '12', '--gen', '8', '--repeat', '1', '--text', text, '--speculative', TINY];
    const { status, out } = await run(['bench', TINY, '-d', 'cpu', ...small, '--json', '--draft-tokens', '3']);
    expect(status).toBe(0);
    const [{ speculative }] = JSON.parse(out).runs;
    // Of a model for itself: seven tokens behind the first, in two steps of three drafts, less the last one.
    expect(speculative).toMatchObject({ acceptedShare: 1, draftsPerStep: 2.5 });
    const { plainTokensPerSecond, decodeTokensPerSecond, speedUp } = speculative;
    expect(speedUp.median).toBeCloseTo(decodeTokensPerSecond.median / plainTokensPerSecond.median, 6);
    const table = await run(['bench', TINY, '-d', 'cpu', ...small]);
    expect(table.out).toMatch(/without drafts +with drafts +ratio +drafts a step +accepted\n.* x?[\d.]+x .* 100 %/);
    const short = await run(['bench', TINY, '-d', 'cpu', ...small, '--context', '400']);
    expect([short.status, short.err]).toEqual([2, expect.stringMatching(/the text has \d+ tokens and a prompt 400/)]);
  });

  test('compares with texts of a form', async () => {
    const small = ['--prompt', '12', '--gen', '8', '--repeat', '1', '--batch', '1,3', '--regex', '[a-z ]{200,}'];
    const { status, out } = await run(['bench', TINY, '-d', 'cpu', ...small, '--json']);
    expect(status).toBe(0);
    for (const { structured, speculative } of JSON.parse(out).runs) {
      expect(speculative).toBeUndefined();
      expect(structured.decodeTokensPerSecond.median).toBeGreaterThan(0);
      expect(structured.speedUp.median).toBeGreaterThan(0);
    }
    const table = await run(['bench', TINY, '-d', 'cpu', ...small]);
    expect(table.out).toMatch(/without the form +with the form +ratio\n.* [\d.]+x /);
    const short = await run(['bench', TINY, '-d', 'cpu', ...small, '--regex', 'a']);
    expect([short.status, short.err]).toEqual([2, expect.stringMatching(/ended after \d+ of 8 tokens; give a form/)]);
  });

  test('is a table for people; what cannot be is refused before anything runs', async () => {
    const small = ['--prompt', '4', '--gen', '2', '--repeat', '1'];
    const { status, out, err } = await run(['bench', TINY, '-d', 'js', ...small, '--batch', '12']);
    expect([status, out]).toEqual([0, expect.stringMatching(/sequences +prompt +first token/)]);
    expect(err).toBe('');
    for (const wrong of [
      ['--batch', '1,x'],
      ['--gen', '1'],
      ['--report', join(folder, 'none', 'report')],
      ['--text', join(folder, 'none')],
      ['--draft-tokens', '3'],
    ]) {
      const refused = await run(['bench', TINY, '-d', 'js', ...small, ...wrong]);
      expect([wrong, refused.status, refused.out]).toEqual([wrong, 2, '']);
      expect(refused.err).toMatch(/^error USAGE: [^\n]+\n$/);
    }
  });
});

describe('inspect of a directory', { timeout: 300_000 }, () => {
  const inspect = async (path: string) => JSON.parse((await run(['inspect', path, '--json'])).out);

  test('one GGUF model', async () => {
    const directory = join(folder, 'one');
    mkdirSync(directory);
    copyFileSync(TINY, join(directory, 'model.gguf'));
    const said = await inspect(directory);
    expect(said).toMatchObject({
      format: 'GGUF v3',
      file: join(directory, 'model.gguf'),
      loads: 'loadModel',
      problems: [],
    });
    expect(said.memory[0].contexts).toEqual([{ positions: 512, cacheBytes: said.memory[0].cacheBytes }]);
    for (const { device, freeBytes, fittingContext } of said.memory) {
      if (device === 'js') expect([freeBytes, fittingContext]).toEqual([null, null]);
      else expect([freeBytes > 2 ** 26, fittingContext]).toEqual([true, 512]);
    }
    const { out } = await run(['inspect', directory]);
    expect(out).toMatch(/\nloads with loadModel\n/);
  });

  test('safetensors files with config.json, with an index and without', async () => {
    const directory = join(folder, 'checkpoint');
    mkdirSync(directory);
    const names = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
    for (const [i, name] of names.entries()) {
      const tensor = Tensor.zeros([2, 3], { device: Device.js() });
      await saveSafetensors(join(directory, name), { [`w${i}`]: tensor });
      tensor.dispose();
    }
    const config = {
      num_hidden_layers: 2,
      hidden_size: 8,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      max_position_embeddings: 10,
    };
    writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
    const without = await inspect(directory);
    expect(without).toMatchObject({ format: 'safetensors in 2 parts', metadata: config, parameters: 12 });
    expect(without.tensors.map(({ name }: { name: string }) => name)).toEqual(['w0', 'w1']);
    expect(without.memory[0]).toMatchObject({ weightBytes: 48, cacheBytes: 2 * 2 * 2 * 2 * 4 * 10, contextLength: 10 });
    const index = join(directory, 'model.safetensors.index.json');
    writeFileSync(index, JSON.stringify({ weight_map: { w0: names[0], w1: names[1] } }));
    expect([without.loads, without.problems]).toEqual([
      false,
      ['There is no tokenizer.json beside the weights.', expect.stringContaining('is not supported')],
    ]);
    expect((await inspect(directory)).tensors).toEqual(without.tensors);
    expect((await inspect(index)).tensors).toEqual(without.tensors);
  });

  test('a head that config.json promises and that is not there', async () => {
    const directory = join(folder, 'headless');
    cpSync(join(root, 'models/tiny/smollm3'), directory, { recursive: true });
    const path = join(directory, 'config.json');
    const config = JSON.parse(readFileSync(path, 'utf8'));
    expect(await inspect(directory)).toMatchObject({ loads: 'loadModel', problems: [] });
    // An adapter beside a model is not what the directory is.
    writeFileSync(join(directory, 'adapter_model.safetensors'), '');
    expect(await inspect(directory)).toMatchObject({ loads: 'loadModel', problems: [] });
    writeFileSync(path, JSON.stringify({ ...config, tie_word_embeddings: false }));
    const problems = [expect.stringMatching(/no head \(lm_head\.weight\)/)];
    expect(await inspect(directory)).toMatchObject({ loads: false, problems });
  });

  test('a model of texts and images, of which the text part loads', async () => {
    const directory = join(folder, 'whole');
    cpSync(join(root, 'models/tiny/qwen2'), directory, { recursive: true });
    const path = join(directory, 'model.safetensors');
    const file = SafetensorsFile.open(path);
    const tensors = new Map(file.names.map((name) => [name, file.loadSync(name, 'js')]));
    file.close();
    const alone = await inspect(path);
    tensors.set('visual.merger.weight', Tensor.zeros([256], { device: Device.js() }));
    await saveSafetensors(path, tensors);
    for (const tensor of tensors.values()) tensor.dispose();
    const config = JSON.parse(readFileSync(join(directory, 'config.json'), 'utf8'));
    const whole = { ...config, model_type: 'qwen2_vl', architectures: ['Qwen2VLForConditionalGeneration'] };
    writeFileSync(join(directory, 'config.json'), JSON.stringify(whole));
    const found = await inspect(path);
    expect(found).toMatchObject({
      loads: 'loadModel',
      problems: [],
      textPartOf: { model: 'qwen2_vl', tensors: 1, bytes: 1024 },
      // What is free changes meanwhile.
      memory: alone.memory.map(({ freeBytes, ...sizes }: { freeBytes: number }) => sizes),
    });
    const { out } = await run(['inspect', path]);
    expect(out).toMatch(
      /\n {2}the text part of a qwen2_vl model: texts only, the other parts' 1 tensors \(1\.00 KiB\)/,
    );
  });

  test('fp8 with scales, which becomes bf16', async () => {
    const directory = join(folder, 'fp8');
    mkdirSync(directory);
    const weight = Tensor.zeros([256, 8], 'f8e4m3', Device.js());
    const scales = Tensor.zeros([2, 1], { device: Device.js() });
    const path = join(directory, 'model.safetensors');
    await saveSafetensors(path, { 'a.weight': weight, 'a.weight_scale_inv': scales });
    for (const tensor of [weight, scales]) tensor.dispose();
    const { format, memory } = await inspect(directory);
    expect(format).toBe('safetensors, fp8 with scales, which is loaded as bf16');
    for (const { device, weightBytes } of memory) expect(weightBytes).toBe(256 * 8 * (device === 'js' ? 4 : 2));
  });
});

test('a mixture of experts: what they take, and where they are', { timeout: 300_000 }, async () => {
  const mixture = fileURLToPath(new URL('../../../models/tiny/qwen3_moe', import.meta.url));
  for (const { device, experts, weightBytes } of JSON.parse((await run(['inspect', mixture, '--json'])).out).memory) {
    // Two layers of eight experts of three matrices.
    const bytes = 2 * 8 * 3 * 64 * 32 * (device === 'js' ? 4 : 2);
    expect(experts).toEqual({ bytes, count: 8, chosen: 2, leastBytes: weightBytes - bytes * 0.75 });
  }
  expect((await run(['inspect', mixture])).out).toMatch(/with experts in host memory \(.*\) at least .* with 2 of 8/);
  const few = ['--experts', 'host', '--hot-experts', '3', '--json', '-n', '2', '-p', 'a', '--device', 'cpu'];
  const { experts } = JSON.parse((await run(['run', mixture, ...few])).out);
  expect(experts).toMatchObject({ layers: 2, experts: 8, hotExperts: 3 });
  const { err } = await run(['run', mixture, '-p', 'a', '--device', 'cpu', '--hot-experts', '1']);
  expect(err).toContain('each token takes 2 of 8 experts');
});
