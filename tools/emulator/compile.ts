/**
 * Compiles kernels for emulated lanes. Most of a file is the same for several chips, so a library is kept under what the
 * preprocessor makes of its source, and a chip gets what another has built. With LLVM's `opt` and `llc` beside clang, values
 * are kept in registers between the lines of a kernel, which takes no longer to compile than leaving all in memory and runs
 * in half the time; without them it is -O0.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { toolOf } from '../../packages/hip/src/clang.mjs';
import { ENVIRONMENT } from '../kernels/compile';
import type { Compiler } from '../kernels/toolchain';

/** From the functions that others call to those that call them, so that what is inlined is small. */
const PASSES =
  'cgscc(inline<only-mandatory>,function<eager-inv>(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg)),globaldce';
const CPU = 'x86-64-v3';
const FLAGS = ['-std=c++20', `-march=${CPU}`, '-ffp-contract=on', '-w', '-fPIC'];
const HIDDEN = '-fvisibility=hidden';

const execute = promisify(execFile);
const run = (program: string, args: readonly string[], options: { maxBuffer?: number } = {}) =>
  execute(program, args, { ...options, env: ENVIRONMENT });

export interface Source {
  /** The library that comes of it, without `.so`. */
  name: string;
  path: string;
  flags: string[];
}

export class LaneCompiler {
  readonly #opt: string | undefined;
  readonly #llc: string | undefined;

  /** `kept` is a directory for libraries of any chip; with `optimize` clang does all that it does at -O1. */
  constructor(
    readonly clang: Compiler,
    readonly kept: string,
    readonly optimize: boolean,
  ) {
    mkdirSync(kept, { recursive: true });
    if (optimize) return;
    this.#opt = toolOf(clang, 'opt');
    this.#llc = toolOf(clang, 'llc');
  }

  /** The fibers that all kernels share, with all optimisations. */
  async lanes(path: string, flags: string[], output: string): Promise<void> {
    await run(this.clang.path, [...FLAGS, '-O2', '-shared', '-Wl,-soname,liblanes.so', ...flags, path, '-o', output]);
  }

  /** Libraries of the sources in `directory`, where liblanes.so lies, the largest first and two at a time. */
  async libraries(sources: readonly Source[], directory: string): Promise<void> {
    const texts = await Promise.all(
      sources.map(async (source) => ({ source, text: await this.#preprocessed(source) })),
    );
    texts.sort((a, b) => a.text.length - b.text.length);
    const worker = async (): Promise<void> => {
      for (let next = texts.pop(); next; next = texts.pop()) {
        const { source, text } = next;
        const key = createHash('sha256').update([this.clang.version, this.#how, text].join('\0')).digest('hex');
        const library = join(this.kept, `${source.name}-${key.slice(0, 32)}.so`);
        if (!existsSync(library)) await this.#compile(source, library, join(directory, 'liblanes.so'));
        copyFileSync(library, join(directory, `${source.name}.so`));
      }
    };
    await Promise.all([worker(), worker()]);
  }

  get #how(): string {
    return [...FLAGS, this.optimize ? '-O1' : this.#opt && this.#llc ? PASSES : '-O0'].join(' ');
  }

  async #preprocessed({ path, flags }: Source): Promise<string> {
    const { stdout } = await run(this.clang.path, [...FLAGS, ...flags, '-E', '-P', path], { maxBuffer: 2 ** 28 });
    return stdout;
  }

  async #compile({ path, flags }: Source, library: string, lanes: string): Promise<void> {
    const base = `${library}.${process.pid}`;
    const [bitcode, passed, object, linked] = ['bc', 'opt.bc', 'o', 'tmp'].map((extension) => `${base}.${extension}`);
    const clang = (...args: string[]) => run(this.clang.path, [...FLAGS, ...args]);
    try {
      if (this.#opt && this.#llc) {
        const front = ['-O1', '-Xclang', '-disable-llvm-passes', '-emit-llvm', '-c'];
        await clang(...front, HIDDEN, ...flags, path, '-o', bitcode);
        await run(this.#opt, ['-disable-verify', `-passes=${PASSES}`, bitcode, '-o', passed]);
        const target = ['-O0', '-relocation-model=pic', `-mcpu=${CPU}`, '-filetype=obj'];
        await run(this.#llc, [...target, passed, '-o', object]);
      } else {
        await clang(this.optimize ? '-O1' : '-O0', HIDDEN, '-c', ...flags, path, '-o', object);
      }
      await clang('-shared', object, lanes, '-o', linked, '-Wl,-rpath,$ORIGIN');
      renameSync(linked, library);
    } finally {
      for (const file of [bitcode, passed, object, linked]) rmSync(file, { force: true });
    }
  }
}
