/** `candle chat` over pipes and on a pseudo terminal. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bundleCommand } from './command';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const MODEL = join(root, 'models/tiny-tales/tiny-tales-q8_0.gguf');
const folder = mkdtempSync(join(tmpdir(), 'candle-chat-'));
const template = join(folder, 'story.jinja');
const ARGS = ['chat', MODEL, '-d', 'cpu', '-t', '0', '-n', '6', '--chat-template', template];
const command = bundleCommand();

beforeAll(async () => {
  writeFileSync(
    template,
    "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}",
  );
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

function chat(input: string, ...args: string[]) {
  const all = [command, ...ARGS, ...args];
  const { status, stdout, stderr } = spawnSync(process.execPath, all, { input, encoding: 'utf8', timeout: 60_000 });
  return { status, out: stdout, err: stderr };
}

describe('over pipes', () => {
  test('answers each line, each one JSON object when asked', () => {
    const { status, out, err } = chat('Once upon a time\n\nThe king\\\nand queen\n', '--json');
    expect(err).toBe('');
    expect(status).toBe(0);
    const answers = out
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(answers).toHaveLength(2);
    expect(answers[0]).toMatchObject({ role: 'assistant', finishReason: 'length', tokens: 6 });
    expect(answers[1].promptTokens).toBeGreaterThan(answers[0].promptTokens);
  });

  test('ends at once where there is no input', () => {
    expect(chat('')).toEqual({ status: 0, out: '', err: '' });
  });

  test('takes one message with the command, and from standard input whole', () => {
    const one = chat('', '-p', 'Once');
    expect(one.status).toBe(0);
    expect(one.out.length).toBeGreaterThan(3);
    const whole = chat('Once\nupon\n', '-p', '-', '--json');
    expect(JSON.parse(whole.out)).toMatchObject({ role: 'assistant', tokens: 6 });
  });

  test('obeys its commands', () => {
    const file = join(folder, 'saved.json');
    const script = [
      '/system Tell tales.',
      'Once',
      '/regenerate',
      '"""',
      'two',
      'lines"""',
      `/save ${file}`,
      '/edit 1 Twice',
      '//slash',
      '/set seed 5',
      '/set',
      '/continue',
      '/clear',
      `/load ${file}`,
      '/help',
      '/exit',
      'never',
    ];
    const { status, out, err } = chat(`${script.join('\n')}\n`);
    expect(status).toBe(0);
    expect(out.split('\n').length).toBeGreaterThan(6);
    expect(err).toContain('system: Tell tales.');
    expect(err).toContain('seed 5');
    expect(err).toContain('5 messages from');
    expect(err).toContain('/regenerate');
    const saved = JSON.parse(readFileSync(file, 'utf8'));
    expect(saved).toMatchObject({ version: 1, options: { temperature: 0, maxTokens: 6 } });
    const contents = saved.messages.map(({ role, content }: Record<string, string>) =>
      role === 'assistant' ? '' : content,
    );
    expect(contents).toEqual(['Tell tales.', 'Once', '', 'two\nlines', '']);
    const again = chat('And?\n', '--load', file, '--json');
    expect(JSON.parse(again.out).reusedTokens).toBe(0);
    expect(again.status).toBe(0);
  });

  test('says what is wrong, goes on, and ends with status 1', () => {
    const plain = join(folder, 'plain.txt');
    writeFileSync(plain, 'mine');
    const script = ['/nope', '/set bogus 1', '/set top-p 7', '/set seed', '/edit 9 x', '/regenerate', '/continue'];
    const { status, out, err } = chat(
      `${[...script, `/save ${plain}`, `/load ${plain}`, '/save', 'Once'].join('\n')}\n`,
    );
    expect(status).toBe(1);
    expect(out.length).toBeGreaterThan(3);
    const errors = err.split('\n').filter((line) => line.startsWith('error '));
    expect(errors).toHaveLength(10);
    expect(errors[0]).toContain('no command /nope');
    expect(errors[2]).toContain('top-p: Give a number');
    expect(errors[7]).toContain('left as it is');
    expect(readFileSync(plain, 'utf8')).toBe('mine');
  });

  test('says what it leaves out when the context is full, or refuses', () => {
    const tale = 'Once upon a time there lived a king who had a daughter.\n'.repeat(5);
    const { status, err } = chat(tale, '--max-context', '96');
    expect(status).toBe(0);
    expect(err).toMatch(/the oldest \d+ messages are left out of the prompt/);
    const refused = chat(tale, '--max-context', '96', '--when-full', 'error');
    expect(refused.status).toBe(1);
    expect(refused.err).toContain('CONTEXT_EXCEEDED');
  });

  test('says what cannot be before anything is asked', () => {
    const bad = join(folder, 'bad.jinja');
    writeFileSync(bad, '{% for %}');
    const cases: [string[], number, string][] = [
      [['-p', 'x', '--chat-template', bad], 1, 'BAD_CHAT_TEMPLATE'],
      [['--chat-template', join(folder, 'none')], 2, 'there is no file'],
      [['--logit-bias', '5'], 2, 'Give ID=BIAS'],
      [['--presence-penalty', '1e9'], 2, 'from -100 to 100'],
      [['-p', 'x', '--template-variable', 'messages=1'], 1, 'no template variable "messages"'],
      [['-p', 'x', '--load', bad], 1, 'FILE_INVALID'],
    ];
    for (const [args, expected, message] of cases) {
      const { status, err } = chat('', ...args);
      expect(err, args.join(' ')).toContain(message);
      expect(status, args.join(' ')).toBe(expected);
    }
  });
});

/** A pseudo terminal of util-linux's `script`. */
class Terminal {
  text = '';
  readonly ended: Promise<number | null>;
  private readonly child: ChildProcess;

  constructor(...args: string[]) {
    const line = [process.execPath, command, ...ARGS, ...args].map((word) => `'${word}'`).join(' ');
    const env = { ...process.env, TERM: 'xterm', NO_COLOR: '1', FORCE_COLOR: '' };
    this.child = spawn('script', ['-qec', line, '/dev/null'], { env });
    this.child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      this.text += text;
    });
    this.ended = new Promise((resolve) => this.child.on('close', resolve));
  }

  type(text: string): void {
    this.child.stdin!.write(text);
  }

  /** Waits until `pattern` is in what came since the last time. */
  async see(pattern: RegExp): Promise<string> {
    for (let i = 0; i < 600; i++) {
      const found = pattern.exec(this.text);
      if (found) {
        const before = this.text.slice(0, found.index + found[0].length);
        this.text = this.text.slice(before.length);
        return before;
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    this.child.kill('SIGKILL');
    throw new Error(`${pattern} did not come; there is ${JSON.stringify(this.text)}`);
  }
}

const hasScript = spawnSync('script', ['-qec', 'true', '/dev/null']).status === 0;

describe.skipIf(!hasScript)('on a terminal', () => {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: readline puts the cursor behind its prompt
  const PROMPT = /> \x1b\[3G/;

  test('edits lines, remembers them, takes a paste of several lines as one message, and leaves', async () => {
    const terminal = new Terminal();
    expect(await terminal.see(PROMPT)).toContain('\x1b[?2004h');
    terminal.type('Oncx\x7fe\r');
    await terminal.see(/max-tokens; \/continue/);
    await terminal.see(PROMPT);
    // The line before, by the arrow key.
    terminal.type('\x1b[A');
    await terminal.see(/Once/);
    terminal.type('\r');
    await terminal.see(/max-tokens; \/continue/);
    await terminal.see(PROMPT);
    terminal.type('\x1b[200~one\rtwo\rthree\x1b[201~');
    await terminal.see(/one⏎two⏎three/);
    terminal.type('\r');
    await terminal.see(/max-tokens; \/continue/);
    await terminal.see(PROMPT);
    const file = join(folder, 'typed.json');
    terminal.type(`/save ${file}\r`);
    await terminal.see(/saved in/);
    await terminal.see(PROMPT);
    terminal.type('\x04');
    expect(await terminal.ended).toBe(0);
    expect(terminal.text).toContain('\x1b[?2004l');
    const { messages } = JSON.parse(readFileSync(file, 'utf8'));
    const mine = messages.filter(({ role }: { role: string }) => role === 'user');
    expect(mine.map(({ content }: { content: string }) => content)).toEqual(['Once', 'Once', 'one\ntwo\nthree']);
  });

  test('Ctrl+C interrupts an answer, empties a line, and twice leaves', async () => {
    const terminal = new Terminal('-n', '400');
    await terminal.see(PROMPT);
    terminal.type('Tell me a long tale\r');
    await terminal.see(/tale\s+\S+\s\S+/);
    terminal.type('\x03');
    await terminal.see(/interrupted; \/continue/);
    await terminal.see(PROMPT);
    terminal.type('not this');
    await terminal.see(/not this/);
    terminal.type('\x03');
    await terminal.see(PROMPT);
    terminal.type('/system ok\r');
    await terminal.see(/system: ok/);
    await terminal.see(PROMPT);
    terminal.type('\x03');
    await terminal.see(/once more/);
    terminal.type('\x03');
    expect(await terminal.ended).toBe(130);
  });
});
