"""A model of Triton's Python backend: x + y and x - y, and what can go wrong."""

import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        print("model", config["name"], "batch", config["max_batch_size"], "dynamic", "dynamic_batching" in config, flush=True)
        self.kept = []

    def execute(self, requests):
        return [self.one(r) for r in requests]

    def one(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
        y = pb_utils.get_input_tensor_by_name(request, "y").as_numpy()
        what = x.flat[0]
        print("rows", len(x), flush=True)
        if what == 400:
            return pb_utils.InferenceResponse([], error=pb_utils.TritonError("no 400 here"))
        if what == 401:
            raise RuntimeError("thrown")
        if what == 402:
            time.sleep(3600)
        if what == 403:
            while True:
                self.kept.append(bytearray(b"x") * (16 << 20))
        sum, difference = (x + y).astype(np.float32), (x - y).astype(np.float32)
        if what == 404:
            sum = sum[:1]
        return pb_utils.InferenceResponse([pb_utils.Tensor("sum", sum), pb_utils.Tensor("difference", difference)])
