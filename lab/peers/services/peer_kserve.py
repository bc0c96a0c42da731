"""A model of KServe's own Python server that runs ONNX. The server has no batching: on
Kubernetes a sidecar does it, for another protocol. Each setting is a model by that name."""

import asyncio
import json
import os

import onnxruntime as ort
from kserve import InferOutput, InferResponse, Model, ModelServer

with open(os.environ["FAAS_INFER_PEER"]) as f:
    peer = json.load(f)


class Onnx(Model):
    def load(self) -> bool:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(peer["model"], options, providers=["CPUExecutionProvider"])
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.ready = True
        return True

    async def predict(self, payload, headers=None, response_headers=None):
        feeds = {i.name: i.as_numpy() for i in payload.inputs}
        if self.threaded:
            results = await asyncio.to_thread(self.session.run, self.outputs, feeds)
        else:
            results = self.session.run(self.outputs, feeds)
        outputs = []
        for name, result in zip(self.outputs, results):
            output = InferOutput(name=name, shape=list(result.shape), datatype="FP32")
            output.set_data_from_numpy(result, binary_data=payload.use_binary_outputs)
            outputs.append(output)
        return InferResponse(response_id=payload.id or "", model_name=self.name, infer_outputs=outputs,
                             use_binary_outputs=payload.use_binary_outputs)


if __name__ == "__main__":
    models = []
    for setting in peer["settings"]:
        models.append(Onnx(setting["name"]))
        models[-1].load()
        models[-1].threaded = setting["workers"] > 0
    ModelServer(http_port=peer["port"], grpc_port=peer["grpc_port"], enable_latency_logging=False).start(models)
