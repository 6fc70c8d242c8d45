export declare const NEWEST: Readonly<Record<string, readonly number[]>>;
export declare function portabilityProblems(path: string, libc: 'gnu' | 'musl'): string[];
export declare function writeOldLibraries(compiler: string, directory: string): string[] | string;
