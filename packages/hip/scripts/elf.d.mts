export interface ElfSymbol {
  name: string;
  version: string | undefined;
  library: string | undefined;
  defined: boolean;
  isDefault: boolean;
  type: string;
  size: number;
}
export declare function readElf(path: string): {
  machine: string;
  needed: string[];
  stripped: boolean;
  symbols: ElfSymbol[];
};
