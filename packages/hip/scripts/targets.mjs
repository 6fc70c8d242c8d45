// The platforms that the addon is built for: one entry here, and one package in prebuilt/.

/** `directory` is where a build leaves the addon, in prebuilds/; src/addon.ts looks there. */
export const TARGETS = {
  'linux-x64-gnu': { directory: 'linux-x64', libc: 'gnu', machine: 'x64', compilers: ['g++'], arguments: [] },
  'linux-arm64-gnu': {
    directory: 'linux-arm64',
    libc: 'gnu',
    machine: 'arm64',
    compilers: ['aarch64-linux-gnu-g++'],
    arguments: [],
  },
  // zig brings musl and a C++ library for it; Debian has no C++ compiler for musl.
  'linux-x64-musl': {
    directory: 'linux-x64-musl',
    libc: 'musl',
    machine: 'x64',
    compilers: ['zig'],
    arguments: ['c++', '-target', 'x86_64-linux-musl'],
  },
};

/** The target of the machine that this runs on; undefined where the addon has never been built. */
export function nativeTarget() {
  if (process.platform !== 'linux') return undefined;
  const libc = process.report.getReport().header.glibcVersionRuntime ? 'gnu' : 'musl';
  return `linux-${process.arch}-${libc}`;
}
