"""Ray Serve's deployment for an ONNX model: bytes are the inputs' one after the other, JSON
has an array for each input, gRPC the Open Inference Protocol's messages. Each setting has a
batch queue, and a path or a model of its own."""

import json
import os
import signal

import numpy as np
import onnxruntime as ort
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tritonclient.grpc import service_pb2

with open(os.environ["FAAS_INFER_PEER"]) as f:
    peer = json.load(f)


@serve.deployment(num_replicas=1, max_ongoing_requests=10000, ray_actor_options={"num_cpus": 0})
class Onnx:
    def __init__(self, peer):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(peer["model"], options, providers=["CPUExecutionProvider"])
        self.inputs = [(i["name"], np.dtype(i["dtype"]), i["shape"]) for i in peer["inputs"]]
        self.outputs = [o.name for o in self.session.get_outputs()]
        self.ways = {s["name"]: self.way(s) for s in peer["settings"]}

    def way(self, setting):
        async def run(items):
            feeds = {name: np.concatenate([x[i] for x in items]) for i, (name, _, _) in enumerate(self.inputs)}
            outputs = self.session.run(self.outputs, feeds)
            return [[o[i:i + 1] for o in outputs] for i in range(len(items))]

        if setting["max_batch"] > 1:
            return serve.batch(max_batch_size=setting["max_batch"],
                               batch_wait_timeout_s=setting["delay_ms"] / 1000)(run)

        async def alone(item):
            return (await run([item]))[0]
        return alone

    async def __call__(self, request: Request):
        path = request.url.path.strip("/").split("/")
        run = self.ways[path[-1]]
        if path[-2] == "json":
            body = json.loads(await request.body())
            outputs = await run([np.asarray(body[n], t).reshape(s) for n, t, s in self.inputs])
            return JSONResponse({n: o.tolist() for n, o in zip(self.outputs, outputs)})
        body, items, at = await request.body(), [], 0
        for _, kind, shape in self.inputs:
            items.append(np.frombuffer(body, kind, int(np.prod(shape)), at).reshape(shape))
            at += items[-1].nbytes
        outputs = await run(items)
        return Response(b"".join(o.tobytes() for o in outputs), media_type="application/octet-stream")

    async def ModelInfer(self, request):
        items = [np.frombuffer(raw, t).reshape(s) for raw, (_, t, s) in zip(request.raw_input_contents, self.inputs)]
        outputs = await self.ways[request.model_name](items)
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        for name, o in zip(self.outputs, outputs):
            answer.outputs.add(name=name, datatype="FP32", shape=o.shape)
            answer.raw_output_contents.append(o.tobytes())
        return answer


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="warning",
             object_store_memory=100 << 20, _temp_dir=peer["dir"] + "/r")
    serve.start(http_options={"host": "127.0.0.1", "port": peer["port"]},
                grpc_options={"port": peer["grpc_port"], "grpc_servicer_functions": [
                    "tritonclient.grpc.service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server"]},
                logging_config={"enable_access_log": False})
    serve.run(Onnx.bind(peer), name="peer", route_prefix="/")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()
