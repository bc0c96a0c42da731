import os

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """A linear classifier. train.py writes its weights beside this file."""

    def initialize(self, args):
        here = os.path.join(args["model_repository"], args["model_version"])
        with np.load(os.path.join(here, "weights.npz")) as trained:
            self.weights, self.bias = trained["weights"], trained["bias"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        # A request is a batch: it has a row for each instance.
        rows = triton.get_input_tensor_by_name(request, "lengths").as_numpy()
        scores = rows @ self.weights + self.bias
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        species = (likely / likely.sum(axis=1, keepdims=True)).astype("float32")
        return triton.InferenceResponse([triton.Tensor("species", species)])
