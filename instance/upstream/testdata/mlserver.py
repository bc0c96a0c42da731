"""A runtime of MLServer's: twice x, and what can go wrong."""

import os

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Twice(MLModel):
    async def load(self):
        print("batch", self.settings.max_batch_size, "time", self.settings.max_batch_time, flush=True)
        return True

    async def predict(self, payload):
        x = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        if x.flat[0] == 400:
            raise ValueError("no 400 here")
        if x.flat[0] == 401:
            os._exit(7)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("twice", (2 * x).astype(np.float32))])
