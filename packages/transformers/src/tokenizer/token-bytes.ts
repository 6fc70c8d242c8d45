/**
 * The bytes that single tokens add to a text, which may end inside of a character: what the decoder of a tokenizer does, token
 * by token. Grammars follow texts by them.
 */
import { TransformersError } from '../errors';
import { bytesOf } from './byte-letters';
import type { TokenizerJson } from './tokenizer';

type Step = { type: string } & Record<string, unknown>;

/** @param json as `checkDefinition` gives it @throws TransformersError UNSUPPORTED_TOKENIZER */
export function tokenBytesOf({ decoder, added_tokens }: TokenizerJson): (token: string) => Uint8Array {
  const added = new Set(added_tokens.map(({ content }) => content));
  const steps = flat(decoder as Step | null);
  const fuse = steps.findIndex(({ type }) => type === 'Fuse');
  // What comes behind Fuse is done to whole texts: a space less at their beginning.
  const own = steps.filter(({ type }, i) => type !== 'Fuse' && !(type === 'Strip' && fuse >= 0 && i > fuse));
  const known = ['ByteLevel', 'ByteFallback', 'Replace', 'Metaspace'];
  const unknown = own.find(
    (step) => !known.includes(step.type) || (step.type === 'Replace' && textOf(step) === undefined),
  );
  if (unknown || own.length === 0) {
    const what = unknown ? `a ${unknown.type} decoder` : 'no decoder';
    throw new TransformersError(
      'UNSUPPORTED_TOKENIZER',
      `The tokenizer has ${what}, with which single tokens have no bytes of their own; schemas and grammars need a byte-level or SentencePiece tokenizer.`,
    );
  }
  return (token) => {
    let text = token;
    for (const step of own) {
      if (step.type === 'ByteLevel') return added.has(token) ? Buffer.from(text, 'utf8') : bytesOf(text);
      if (step.type === 'ByteFallback') {
        const byte = /^<0x([0-9A-F]{2})>$/.exec(text);
        if (byte) return Uint8Array.of(Number.parseInt(byte[1], 16));
      } else if (step.type === 'Replace') text = text.replaceAll(textOf(step)!, () => String(step.content));
      else text = text.replaceAll(String(step.replacement), ' ');
    }
    return Buffer.from(text, 'utf8');
  };
}

function flat(step: Step | null): Step[] {
  if (!step) return [];
  return step.type === 'Sequence' ? (step.decoders as Step[]).flatMap(flat) : [step];
}

function textOf({ pattern }: Step): string | undefined {
  return (pattern as { String?: string }).String;
}
