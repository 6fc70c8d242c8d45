"""Vectors and scores that sentence-transformers computes for models/encoders: models/encoders/sentence-transformers.json.

    python tools/golden/embeddings.py models/encoders

Needs torch, transformers and sentence-transformers. Packages and versions are in the file that it writes. A copy of the
BERT with a Dense module and prompts, as config_sentence_transformers.json has them, is made in a temporary directory.
"""

import json
import os
import shutil
import sys
import tempfile

import sentence_transformers
import torch
import transformers
from safetensors.torch import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer

TEXTS = [
    "Once upon a time there was a king who had three daughters.",
    "The wolf ran.",
    "",
    "He said: \"I will go to the forest and bring the golden apple to the old woman, who sat before the door of her house.\" "
    * 8,
]
QUERY = "Who had three daughters?"
WIDE = {"dtype": torch.float32}
NAMES = ["bert", "roberta", "xlm_roberta", "modernbert", "nomic_bert", "qwen3_embedding"]


def rounded(tensor):
    return [[float(f"{value:.7g}") for value in row] for row in tensor.tolist()]


def with_dense(folder, root):
    """The BERT with mean pooling that leaves the prompt out, a Dense module and prompts."""
    copy = os.path.join(root, "bert_dense")
    shutil.copytree(folder, copy)
    os.chmod(copy, 0o755)
    modules = json.load(open(os.path.join(copy, "modules.json")))
    modules.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    modules[3].update({"idx": 3, "name": "3", "path": "3_Normalize"})
    dense = {"in_features": 64, "out_features": 24, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}
    pooling = {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False, "include_prompt": False}
    prompts = {"prompts": {"query": "the king said: ", "document": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    os.makedirs(os.path.join(copy, "2_Dense"))
    for path, value in {
        "modules.json": modules,
        "1_Pooling/config.json": pooling,
        "2_Dense/config.json": dense,
        "config_sentence_transformers.json": prompts,
        "sentence_bert_config.json": {"max_seq_length": 32, "do_lower_case": False},
    }.items():
        with open(os.path.join(copy, path), "w") as file:
            json.dump(value, file)
    # Numbers that the test makes alike: no weights in git.
    rows = torch.arange(24 * 64, dtype=torch.float64)
    weight = torch.sin(rows * 12.9898).reshape(24, 64) * 0.25
    bias = torch.cos(torch.arange(24, dtype=torch.float64)) * 0.1
    save_file({"linear.weight": weight.float(), "linear.bias": bias.float()}, os.path.join(copy, "2_Dense", "model.safetensors"))
    return copy, {"modules": modules, "pooling": pooling, "dense": dense, "prompts": prompts}


def main(root):
    torch.manual_seed(0)
    made = {
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, sentence_transformers)},
        "texts": TEXTS,
        "query": QUERY,
        "models": {},
    }
    for name in NAMES:
        model = SentenceTransformer(os.path.join(root, name), device="cpu", model_kwargs=WIDE)
        config = model[0].auto_model.config
        # tokenizer_config.json may allow more than there are positions, which begin behind the padding token's id in RoBERTa.
        taken = config.pad_token_id + 1 if "roberta" in name else 0
        model.max_seq_length = min(model.max_seq_length, config.max_position_embeddings - taken)
        texts = [text for text in TEXTS if text or "bert" in name and name != "roberta" and name != "modernbert"]
        # One by one: the padding token of some of these tokenizers is none of their models.
        vectors = model.encode(texts, batch_size=1, convert_to_tensor=True, normalize_embeddings=True)
        made["models"][name] = {"texts": [TEXTS.index(text) for text in texts], "vectors": rounded(vectors)}
    with tempfile.TemporaryDirectory() as temporary:
        folder, files = with_dense(os.path.join(root, "bert"), temporary)
        model = SentenceTransformer(folder, device="cpu", model_kwargs=WIDE)
        made["dense"] = {
            "files": files,
            "query": rounded(model.encode_query([QUERY], convert_to_tensor=True, normalize_embeddings=True)),
            "documents": rounded(model.encode_document(TEXTS, convert_to_tensor=True, normalize_embeddings=True)),
            "first8": rounded(model.encode_document(TEXTS[:2], convert_to_tensor=True, normalize_embeddings=True, truncate_dim=8)),
        }
    cross = CrossEncoder(os.path.join(root, "bert_rerank"), device="cpu", max_length=128, model_kwargs=WIDE)
    made["rerank"] = [float(f"{score:.7g}") for score in cross.predict([(QUERY, text) for text in TEXTS]).tolist()]
    with open(os.path.join(root, "sentence-transformers.json"), "w") as file:
        json.dump(made, file)


if __name__ == "__main__":
    main(sys.argv[1])
