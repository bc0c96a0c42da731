"""MLServer's runtime for an ONNX model."""

import json
import os

import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Onnx(MLModel):
    async def load(self) -> bool:
        with open(os.environ["FAAS_INFER_PEER"]) as f:
            model = json.load(f)["model"]
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]
        return True

    async def predict(self, payload):
        feeds = {i.name: NumpyCodec.decode_input(i) for i in payload.inputs}
        outputs = self.session.run(self.names, feeds)
        return InferenceResponse(
            model_name=self.name,
            outputs=[NumpyCodec.encode_output(n, o) for n, o in zip(self.names, outputs)],
        )
