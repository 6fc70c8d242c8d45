"""Vocabularies and expected ids for the tests of tokenizers: packages/transformers/test/fixtures/tokenizers.

    python tools/golden/tokenizer_ids.py packages/transformers/test/fixtures/tokenizers [--train]

Needs tokenizers, sentencepiece and tiktoken. Small vocabularies are trained on texts that a seed makes, in many scripts; each family of
tokenizers is one of them with the normalizer, pre-tokenizer and post-processor of real models. For 10,000 awkward texts of
another seed, which packages/transformers/test/awkward-texts.ts makes alike, a hash of the ids of every 250 is written. Vocabularies
that are in the folder stay: training is not the same twice.
"""

import base64
import io
import json
import os
import sys

import sentencepiece
import tiktoken
import tokenizers
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE, WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

TEXTS, CHUNK = 10_000, 250

WORDS = json.load(open(os.path.join(sys.argv[1], "awkward-words.json")))
FRAGMENTS = [fragment for group in WORDS["fragments"].values() for fragment in group]
RANGES = WORDS["ranges"]


class Random:
    """A linear congruential generator, whose upper bits count."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return (self.state >> 8) * n >> 24


def awkward(random, known=False):
    parts = []
    for _ in range(1 + random.below(10)):
        kind = random.below(8)
        if kind < 5:
            parts.append(FRAGMENTS[random.below(len(FRAGMENTS))])
        elif kind == 5 and not known:
            first, last = RANGES[random.below(len(RANGES))]
            parts.append("".join(chr(first + random.below(last - first + 1)) for _ in range(1 + random.below(4))))
        elif kind == 5 or kind == 6:
            parts.append(str(random.below(2 ** 24))[: 1 + random.below(8)])
        else:
            parts.append(" " * (1 + random.below(4)))
        if random.below(3) == 0:
            parts.append(" ")
    return "".join(parts)


def texts(seed, count, known=False):
    random = Random(seed)
    return [awkward(random, known) for _ in range(count)]


def fnv(hash, text):
    for byte in text.encode():
        hash = ((hash ^ byte) * 16777619) % 2**32
    return hash


def hashes(encode, strings):
    result = []
    for start in range(0, len(strings), CHUNK):
        hash = 2166136261
        for text in strings[start : start + CHUNK]:
            hash = fnv(hash, ",".join(map(str, encode(text))) + ";")
        result.append(hash)
    return result


def regex(*patterns):
    return [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]


def byte_level(prefix=False, use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(suffix, digits):
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{suffix}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{suffix}|{digits}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
    )


DEEPSEEK_WORDS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|""" + SPACES
)
DIGITS = {"type": "Digits", "individual_digits": True}
CJK = "[一-\u9fa5\u0800-一\uac00-\ud7ff]+"
CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ"
    "ℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
DEEPSEEK_LLM = ["[\r\n]", rf"\s?[{CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", CJK]
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK]
KIMI_UPPER, KIMI_LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = "|".join([
    r"[\p{Han}]+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{KIMI_UPPER}*{KIMI_LOWER}+{CONTRACTIONS}?",
    rf"[^\r\n\p{{L}}\p{{N}}]?{KIMI_UPPER}+{KIMI_LOWER}*{CONTRACTIONS}?",
    r"\p{N}{1,3}",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    SPACES,
])
SEED_CODER = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES
MINICPM5 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
GPT4O = cased(CONTRACTIONS + "?", r"\p{N}{1,3}")
ROBERTA = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False}

# Name, changes of the definition, and what GGUF files call the splitting.
BYTE_LEVEL = {
    "gpt2": ({"pre_tokenizer": byte_level(use_regex=True)}, "gpt-2"),
    "roberta": (
        {
            "pre_tokenizer": byte_level(prefix=True, use_regex=True),
            "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": True},
        },
        None,
    ),
    "llama3": ({"pre_tokenizer": sequence(*regex(LLAMA3), byte_level()), "model": {"ignore_merges": True}}, "llama-bpe"),
    "qwen2": ({"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence(*regex(QWEN2), byte_level())}, "qwen2"),
    "qwen3.5": ({"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence(*regex(QWEN35), byte_level())}, "qwen35"),
    "gpt-4o": ({"pre_tokenizer": sequence(*regex(cased(CONTRACTIONS + "?", r"\p{N}{1,3}")), byte_level())}, "gpt-4o"),
    "tekken": ({"pre_tokenizer": sequence(*regex(cased("", r"\p{N}")), byte_level()), "model": {"ignore_merges": True}}, "tekken"),
    "deepseek-v3": ({"pre_tokenizer": sequence(*regex(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK_WORDS), byte_level())}, "deepseek-v3"),
    "deepseek-llm": ({"pre_tokenizer": sequence(*regex(*DEEPSEEK_LLM), DIGITS, byte_level())}, "deepseek-llm"),
    "deepseek-coder": ({"pre_tokenizer": sequence(*regex(*DEEPSEEK_CODER), DIGITS, byte_level())}, "deepseek-coder"),
    "kimi-k2": ({"pre_tokenizer": sequence(*regex(KIMI), byte_level())}, "kimi-k2"),
    "seed-coder": ({"pre_tokenizer": sequence(*regex(SEED_CODER), byte_level())}, "seed-coder"),
    "minicpm5": ({"pre_tokenizer": sequence(*regex(r"\p{N}{1,3}", MINICPM5), byte_level()), "model": {"ignore_merges": True}}, "minicpm5"),
    "tiny-aya": ({"pre_tokenizer": sequence(*regex(r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O), byte_level())}, "tiny_aya"),
    "roberta-base": ({"pre_tokenizer": byte_level(use_regex=True), "post_processor": ROBERTA}, "roberta-bpe"),
    "starcoder": ({"pre_tokenizer": sequence(DIGITS, byte_level(use_regex=True))}, "starcoder"),
    "falcon": (
        {
            "pre_tokenizer": sequence(
                {"type": "Punctuation", "behavior": "Contiguous"},
                byte_level(use_regex=True),
                {"type": "Digits", "individual_digits": False},
                *regex("[0-9][0-9][0-9]"),
            )
        },
        None,
    ),
    # Not of a model: the other behaviours of splitting.
    "merged": (
        {
            "pre_tokenizer": sequence(
                {"type": "Punctuation", "behavior": "MergedWithNext"},
                {"type": "Split", "pattern": {"Regex": r"\d+"}, "behavior": "MergedWithPrevious", "invert": False},
                {"type": "Split", "pattern": {"Regex": r"\p{L}+|\s"}, "behavior": "Contiguous", "invert": True},
                byte_level(),
            )
        },
        None,
    ),
    "words": ({"pre_tokenizer": sequence({"type": "Whitespace"}, {"type": "Punctuation", "behavior": "Isolated"}, byte_level())}, None),
    "removed": (
        {"pre_tokenizer": sequence({"type": "Split", "pattern": {"Regex": r"\p{L}+|\p{N}+"}, "behavior": "Removed", "invert": True}, byte_level())},
        None,
    ),
}


def train_byte_level(corpus):
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(vocab_size=900, special_tokens=["<s>", "<pad>", "</s>", "<mask>"], initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.decoder = ByteLevelDecoder()
    return json.loads(tokenizer.to_str())


def train_word_piece(corpus, lowercase):
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(corpus, WordPieceTrainer(vocab_size=900, special_tokens=specials, show_progress=False))
    definition = json.loads(tokenizer.to_str())
    definition["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    definition["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": False}
    return definition


def train_sentence_piece(corpus, kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        model_type=kind,
        vocab_size=900,
        character_coverage=0.98,
        byte_fallback=kind == "bpe",
        normalization_rule_name="identity" if kind == "bpe" else "nmt_nfkc",
        remove_extra_whitespaces=kind != "bpe",
        split_digits=kind == "bpe",
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def pieces_of(processor):
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]


def sentence_piece_bpe(processor):
    """As transformers converts it: every way to cut a piece in two, the best pieces first."""
    pieces = pieces_of(processor)
    ids = {piece: i for i, (piece, _) in enumerate(pieces)}
    merges = []
    for piece, score in pieces:
        local = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece)) if piece[:cut] in ids and piece[cut:] in ids]
        local.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        merges += [(a, b, score) for a, b in local if not piece.startswith("<")]
    merges.sort(key=lambda merge: -merge[2])
    added = [special(i, pieces[i][0]) for i in range(3)]
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": ids, "merges": [[a, b] for a, b, _ in merges]}
    return definition_of(model, added)


def bytes_to_characters():
    """GPT-2's: printable bytes are themselves, the others follow from 256 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def special(id, content):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def definition_of(model, added):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": model}


def charsmap_of(processor):
    """normalizer_spec.precompiled_charsmap: field 3 of the model's message, field 2 of that one."""
    def fields(data):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(data):
            key = varint()
            kind = key & 7
            if kind == 2:
                length = varint()
                yield key >> 3, data[at : at + length]
                at += length
            elif kind == 0:
                varint()
            elif kind == 5 and not known:
                at += 4
            else:
                at += 8
    normalizer = [value for field, value in fields(processor.serialized_model_proto()) if field == 3][0]
    return [value for field, value in fields(normalizer) if field == 2][0]


METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
TO_BLOCK = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
EXTRA_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def main(root):
    kept = {}
    if "--train" not in sys.argv and os.path.exists(os.path.join(root, "vocabularies.json")):
        kept = json.load(open(os.path.join(root, "vocabularies.json")))
        scores_kept = json.load(open(os.path.join(root, "expected.json")))["families"]["gemma"]["scores"]
    # Vocabularies know the fragments only, not what else the texts hold.
    corpus = texts(1, 6000, known=True)
    strings = texts(2, TEXTS)
    made = {"versions": {"tokenizers": tokenizers.__version__, "sentencepiece": sentencepiece.__version__}, "families": {}}
    vocabularies = {}

    def family(name, vocabulary, changes, **more):
        definition = json.loads(json.dumps(vocabularies[vocabulary]))
        for key, value in changes.items():
            definition[key] = {**definition["model"], **value} if key == "model" else value
        tokenizer = Tokenizer.from_str(json.dumps(definition))
        encode = lambda text: tokenizer.encode(text).ids
        made["families"][name] = {
            "vocabulary": vocabulary,
            "changes": changes,
            **more,
            "hashes": hashes(encode, strings),
            "samples": [encode(text) for text in strings[:8]],
            "pairs": [tokenizer.encode(strings[i], strings[i + 1]).ids for i in range(4)],
        }

    vocabularies["byte-level"] = kept.get("byte-level") or train_byte_level(corpus)
    for name, (changes, pre) in BYTE_LEVEL.items():
        family(name, "byte-level", changes, **({"gguf": pre} if pre else {}))
    # The same merges as a tiktoken file: ranks are ids behind the special tokens.
    alphabet = {character: byte for byte, character in bytes_to_characters().items()}
    vocabulary = vocabularies["byte-level"]["model"]["vocab"]
    ranks = {bytes(alphabet[c] for c in token): id - 4 for token, id in vocabulary.items() if id >= 4}
    encoding = tiktoken.Encoding("small", pat_str=LLAMA3, mergeable_ranks=ranks, special_tokens={})
    made["tiktoken"] = hashes(lambda text: encoding.encode(text, disallowed_special=()), strings)
    vocabularies["word-piece-uncased"] = kept.get("word-piece-uncased") or train_word_piece(corpus, True)
    vocabularies["word-piece-cased"] = kept.get("word-piece-cased") or train_word_piece(corpus, False)
    family("bert-uncased", "word-piece-uncased", {})
    family("bert-cased", "word-piece-cased", {})

    if kept:
        vocabularies["sentence-piece"], scores = kept["sentence-piece"], scores_kept
    else:
        bpe = train_sentence_piece(corpus, "bpe")
        vocabularies["sentence-piece"] = sentence_piece_bpe(bpe)
        scores = [score for _, score in pieces_of(bpe)]
    family("gemma", "sentence-piece", {"normalizer": TO_BLOCK, "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}}, scores=scores)
    family("llama2", "sentence-piece", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, TO_BLOCK]}}, scores=scores)
    family("mistral", "sentence-piece", {"pre_tokenizer": {**METASPACE, "prepend_scheme": "first", "split": False}})

    if kept:
        vocabularies["unigram"], charsmap = kept["unigram"], kept["charsmap"]
    else:
        unigram = train_sentence_piece(corpus, "unigram")
        model = {"type": "Unigram", "unk_id": 0, "vocab": [[piece, score] for piece, score in pieces_of(unigram)], "byte_fallback": False}
        vocabularies["unigram"] = definition_of(model, [special(i, piece) for i, (piece, _) in enumerate(pieces_of(unigram)[:3])])
        charsmap = base64.b64encode(charsmap_of(unigram)).decode()
    vocabularies["charsmap"] = charsmap
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
    precompiled = {"type": "Precompiled", "precompiled_charsmap": "CHARSMAP"}

    def with_map(changes):
        return json.loads(json.dumps(changes).replace("CHARSMAP", charsmap))

    for name, changes in {
        "xlm-roberta": {"normalizer": {"type": "Sequence", "normalizers": [precompiled, EXTRA_SPACES]}, "pre_tokenizer": METASPACE, "post_processor": template},
        "t5": {"normalizer": {"type": "Sequence", "normalizers": [precompiled]}, "pre_tokenizer": sequence({"type": "WhitespaceSplit"}, METASPACE)},
        "unigram-nfkc": {"normalizer": {"type": "NFKC"}, "pre_tokenizer": METASPACE},
    }.items():
        family(name, "unigram", with_map(changes))
        made["families"][name]["changes"] = changes
    os.makedirs(root, exist_ok=True)
    for name, value in {"vocabularies": vocabularies, "expected": made}.items():
        with open(os.path.join(root, f"{name}.json"), "w") as file:
            json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
    print({name: os.path.getsize(os.path.join(root, f"{name}.json")) for name in ("vocabularies", "expected")})


if __name__ == "__main__":
    main(sys.argv[1])
