export interface AddonTarget {
  directory: string;
  libc: 'gnu' | 'musl';
  machine: 'x64' | 'arm64';
  compilers: string[];
  arguments: string[];
}
export declare const TARGETS: Readonly<Record<string, AddonTarget>>;
export declare function nativeTarget(): string | undefined;
