"""BentoML's service for an ONNX model. A batchable method takes one array, so that a
model's inputs come as one row of numbers; each setting is a method of its own. What is
posted in JSON is x, what is posted as bytes is a file, which is BentoML's form of them."""

import json
import os
from pathlib import Path
from typing import Annotated

import bentoml
import numpy as np
import onnxruntime as ort
from bentoml.validators import DType

with open(os.environ["FAAS_INFER_PEER"]) as f:
    peer = json.load(f)

kind = np.dtype(peer["inputs"][0]["dtype"])
shapes = [tuple(i["shape"][1:]) for i in peer["inputs"]]
ends = np.cumsum([int(np.prod(s)) for s in shapes])
Rows = Annotated[np.ndarray, DType(kind.name)]


def method(setting, files):
    name = ("file_" if files else "json_") + setting["name"]
    if files:
        def run(self, x):
            return self.run(np.stack([np.fromfile(p, kind) for p in x]))
        annotations = {"x": list[Path], "return": np.ndarray}
    else:
        def run(self, x):
            return self.run(x)
        annotations = {"x": Rows, "return": np.ndarray}
    if setting["workers"] == 0:
        blocking = run

        async def run(self, x):
            return blocking(self, x)
    run.__name__ = run.__qualname__ = name
    run.__annotations__ = annotations
    if setting["max_batch"] == 1:
        return name, bentoml.api(run)
    return name, bentoml.api(
        batchable=True, max_batch_size=setting["max_batch"], max_latency_ms=setting["delay_ms"])(run)


@bentoml.service(workers=1, traffic={"timeout": 60}, metrics={"enabled": False},
                 logging={"access": {"enabled": False}})
class Peer:
    def __init__(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(peer["model"], options, providers=["CPUExecutionProvider"])

    def run(self, x):
        x = x.reshape(-1, ends[-1])
        parts = np.split(x, ends[:-1], axis=1)
        feeds = {i["name"]: p.reshape(-1, *s) for i, p, s in zip(peer["inputs"], parts, shapes)}
        return self.session.run(None, feeds)[0]

    for s in peer["settings"]:
        for files in (False, True):
            name, api = method(s, files)
            locals()[name] = api
    del s, files, name, api
