"""The model behind the peers that are written here: texts to vectors with tokenizers and ONNX Runtime.
A batch is padded to its longest text."""

import json
import os

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer

with open(os.environ["FAAS_INFER_PEER"]) as f:
    peer = json.load(f)


class Embedder:
    def __init__(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = peer["threads"]
        self.session = ort.InferenceSession(os.path.join(peer["model"], "model.onnx"), options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(os.path.join(peer["model"], "tokenizer.json"))
        self.tokenizer.enable_truncation(peer["max_length"])
        self.tokenizer.enable_padding()

    def __call__(self, texts):
        rows = self.tokenizer.encode_batch(texts)
        ids = np.array([r.ids for r in rows], dtype=np.int64)
        mask = np.array([r.attention_mask for r in rows], dtype=np.int64)
        hidden = self.session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})[0]
        if peer["pooling"] == "cls":
            vectors = hidden[:, 0]
        else:
            weights = mask[:, :, None].astype(np.float32)
            vectors = (hidden * weights).sum(1) / weights.sum(1)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), mask.sum(1)
