"""A model of Triton's Python backend that runs ONNX: one execution for all requests that
Triton's dynamic batcher hands over."""

import json
import os

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        with open(os.environ["FAAS_INFER_PEER"]) as f:
            model = json.load(f)["model"]
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        if args["model_instance_kind"] == "GPU":
            ort.preload_dlls()  # CUDA's libraries are packages of this environment.
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": args["model_instance_device_id"]}))
        self.session = ort.InferenceSession(model, options, providers=providers)
        if self.session.get_providers()[0] != (providers[0] if len(providers) == 1 else "CUDAExecutionProvider"):
            raise RuntimeError("ONNX Runtime does not use the GPU: " + ", ".join(self.session.get_providers()))
        self.inputs = [i.name for i in self.session.get_inputs()]
        self.outputs = [o.name for o in self.session.get_outputs()]

    def execute(self, requests):
        feeds, rows = {}, None
        for name in self.inputs:
            parts = [pb_utils.get_input_tensor_by_name(r, name).as_numpy() for r in requests]
            rows = [len(p) for p in parts]
            feeds[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        outputs = self.session.run(self.outputs, feeds)
        answers, at = [], 0
        for n in rows:
            answers.append(pb_utils.InferenceResponse(
                [pb_utils.Tensor(name, o[at:at + n]) for name, o in zip(self.outputs, outputs)]))
            at += n
        return answers
