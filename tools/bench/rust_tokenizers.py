"""The Rust library's side of tokenizers.ts: `train DIR FILE` makes two vocabularies, `time DEFINITION BEFORE TEXT` prints
ms and tokens of the text, behind another."""
import json
import os
import sys
import time

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

# How Llama 3's words are split.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(files):
    made = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train(files, trainers.BpeTrainer(vocab_size=64000, initial_alphabet=alphabet, show_progress=False))
    return made


def sentence_piece(files):
    """As Llama 2 and Gemma: trained on words, used on whole texts."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train(files, trainers.BpeTrainer(vocab_size=32000, special_tokens=special, show_progress=False))
    made.pre_tokenizer = None
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    definition = json.loads(made.to_str())
    definition["added_tokens"] = definition["added_tokens"][:1]
    return Tokenizer.from_str(json.dumps(definition))


if sys.argv[1] == "train":
    for name, make in (("byte-level", byte_level), ("sentence-piece", sentence_piece)):
        make(sys.argv[3:]).save(os.path.join(sys.argv[2], f"{name}.json"))
else:
    tokenizer = Tokenizer.from_file(sys.argv[2])
    before, text = (open(name, encoding="utf-8", newline="").read() for name in sys.argv[3:])
    tokenizer.encode(before)
    start = time.perf_counter()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    print(json.dumps({"ms": (time.perf_counter() - start) * 1000, "tokens": len(ids)}))
