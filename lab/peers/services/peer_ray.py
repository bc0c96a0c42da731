"""Ray Serve's deployment for an ONNX model: bytes are the inputs' one after the other, JSON
has an array for each input. Each setting has a batch queue and a path of its own."""

import json
import os
import signal

import numpy as np
import onnxruntime as ort
import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

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


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="warning",
             object_store_memory=100 << 20, _temp_dir=peer["dir"] + "/r")
    serve.start(http_options={"host": "127.0.0.1", "port": peer["port"]}, logging_config={"enable_access_log": False})
    serve.run(Onnx.bind(peer), name="peer", route_prefix="/")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()
