"""Makes tiny.onnx, tiny.json, rerank.onnx, dense0.safetensors, dense1.safetensors and reference.json: a BERT and a
reranker of random weights, their tokenizer, layers behind the pooling, and what sentence-transformers answers for some
texts. See requirements.txt for the packages.

    python -m venv v && v/bin/pip install -r requirements.txt && v/bin/python reference.py
"""
import json
import os
import tempfile

import torch
from sentence_transformers import CrossEncoder, SentenceTransformer, models
from tokenizers import Tokenizer, models as token_models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizerFast

TEXTS = [
    "The provider starts the cheapest mix of instances that carries the load.",
    "Batches.",
    "A request that can no longer be answered in time is refused, and its client is told when to come again.",
    "Größe, 大きさ, размер, 😀!",
    "x",
    "One instance runs many requests together. " * 12,
    "every request gets its own answer",
    "   white   space\tand\nlines   ",
]
LENGTH = 48


def tokenizer():
    t = Tokenizer(token_models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(TEXTS * 3, trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    return t


def export(model, path, outputs):
    axes = {name: {0: "batch", 1: "sequence"} for name in ["input_ids", "attention_mask", "token_type_ids"]}
    axes[outputs[0]] = {0: "batch", 1: "sequence"} if outputs[0] == "last_hidden_state" else {0: "batch"}
    ones = torch.ones((2, 7), dtype=torch.int64)
    model.config.return_dict = False
    torch.onnx.export(model, (ones, ones, ones), path, dynamo=False, opset_version=14,
                      input_names=["input_ids", "attention_mask", "token_type_ids"], output_names=outputs, dynamic_axes=axes)
    model.config.return_dict = True


def main():
    torch.manual_seed(1)
    t = tokenizer()
    t.save("tiny.json")
    config = BertConfig(vocab_size=t.get_vocab_size(), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=64, initializer_range=0.5)
    config._attn_implementation = "eager"
    fast = BertTokenizerFast(tokenizer_object=t, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                             sep_token="[SEP]", model_max_length=LENGTH)
    reference = {"max_length": LENGTH, "texts": TEXTS}
    bert = BertModel(config, add_pooling_layer=False).eval()
    ranker = BertForSequenceClassification(BertConfig.from_dict(config.to_dict(), num_labels=1)).eval()
    with tempfile.TemporaryDirectory() as directory:
        for name, model in [("bert", bert), ("ranker", ranker)]:
            model.save_pretrained(os.path.join(directory, name))
            fast.save_pretrained(os.path.join(directory, name))
        words = models.Transformer(os.path.join(directory, "bert"), max_seq_length=LENGTH)
        for pooling in ["mean", "cls", "lasttoken", "max", "weightedmean"]:
            vectors = SentenceTransformer(modules=[
                words, models.Pooling(16, pooling_mode=pooling), models.Normalize()], device="cpu").encode(TEXTS)
            reference[pooling] = [[round(float(v), 7) for v in row] for row in vectors]
        layers = [models.Dense(16, 24), models.Dense(24, 5, bias=False, activation_function=torch.nn.Identity())]
        for i, layer in enumerate(layers):
            layer.save(directory)
            os.replace(os.path.join(directory, "model.safetensors"), f"dense{i}.safetensors")
        vectors = SentenceTransformer(modules=[words, models.Pooling(16), *layers], device="cpu").encode(TEXTS)
        reference["dense"] = [[round(float(v), 7) for v in row] for row in vectors]
        encoder = CrossEncoder(os.path.join(directory, "ranker"), num_labels=1, max_length=LENGTH, device="cpu")
        reference["scores"] = [float(s) for s in encoder.predict([(TEXTS[0], x) for x in TEXTS])]
    export(bert, "tiny.onnx", ["last_hidden_state"])
    export(ranker, "rerank.onnx", ["logits"])
    with open("reference.json", "w") as f:
        json.dump(reference, f, indent=1)


main()
