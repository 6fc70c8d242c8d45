/**
 * The text part of a checkpoint of texts and images: its tensors under the names that a checkpoint of the text model alone has,
 * and none of the others. What the part is called differs by the version of transformers that wrote the file.
 */
import type { DeviceLike, Tensor } from '@x/core';
import type { LoadOptions, TensorReader } from '@x/core/files';

/** In front of `layers.0...` and `embed_tokens`, for which the text model alone has `model.`. */
const PARTS = [
  'model.language_model.',
  'language_model.model.',
  'model.text_model.',
  'text_model.model.',
  'language_model.',
];
/** First words of the names of what is beside a text part that has no name of its own. */
const OTHERS = /^(?:visual|vision_tower|vision_model|vision_embed_tokens|multi_modal_projector|audio_tower)\./;
/** What stands behind a text model, under this name beside it or in it. */
const HEAD = /^(?:lm_head|score)\./;
const EMBEDDING = 'embed_tokens.weight';

/** The name that a text model alone has for one of a text part's, which may be what is given; undefined for other parts of the whole. */
export function textName(name: string): string | undefined {
  const [, head] = /^(?:language_model\.|text_model\.|model\.)?(lm_head\..+)$/.exec(name) ?? [];
  if (head !== undefined) return head;
  const part = PARTS.find((prefix) => name.startsWith(prefix));
  if (part !== undefined) return `model.${name.slice(part.length)}`;
  return OTHERS.test(name) ? undefined : name;
}

/** The same file, if it is no whole of texts and images; else a reader of its text part. */
export function textPart(file: TensorReader): TensorReader {
  const part = PARTS.find((prefix) => file.has(prefix + EMBEDDING));
  const hasOthers =
    part === undefined && file.has(`model.${EMBEDDING}`) && file.names.some((name) => OTHERS.test(name));
  return part !== undefined || hasOthers ? new TextPartReader(file, part) : file;
}

class TextPartReader implements TensorReader {
  readonly names: string[];
  private readonly stored = new Map<string, string>();

  /** Owns the file. @param part in front of the names; undefined where there is nothing */
  constructor(
    readonly file: TensorReader,
    part: string | undefined,
  ) {
    for (const name of file.names) {
      const called = textName(name);
      const own = part === undefined || name.startsWith(part) || HEAD.test(called ?? '');
      if (own && called !== undefined) this.stored.set(called, name);
    }
    this.names = [...this.stored.keys()];
  }

  get path(): string {
    return this.file.path;
  }

  has(name: string): boolean {
    return this.stored.has(name);
  }

  info(name: string): ReturnType<TensorReader['info']> {
    return this.file.info(this.nameInFile(name));
  }

  load(name: string, device?: DeviceLike, options?: LoadOptions): Promise<Tensor> {
    return this.file.load(this.nameInFile(name), device, options);
  }

  loadSync(name: string, device?: DeviceLike, options?: LoadOptions): Tensor {
    return this.file.loadSync(this.nameInFile(name), device, options);
  }

  get readPartSync(): TensorReader['readPartSync'] {
    if (!this.file.readPartSync) return undefined;
    return (name, offset, into) => this.file.readPartSync!(this.nameInFile(name), offset, into);
  }

  close(): void {
    this.file.close();
  }

  /** Of a name that there is not the name itself, which the file's error then shows. */
  private nameInFile(name: string): string {
    return this.stored.get(name) ?? name;
  }
}
