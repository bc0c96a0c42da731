"""LitServe's API for an ONNX model. Each setting is an API with a path of its own, and a worker
process: JSON has an array for each input, or x with the inputs' bytes one after the other in
base64."""

import base64
import json
import os

import litserve as ls
import numpy as np
import onnxruntime as ort

with open(os.environ["FAAS_INFER_PEER"]) as f:
    peer = json.load(f)


class Onnx(ls.LitAPI):
    def setup(self, device):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(peer["model"], options, providers=["CPUExecutionProvider"])
        self.inputs = [(i["name"], np.dtype(i["dtype"]), i["shape"]) for i in peer["inputs"]]

    def decode_request(self, request):
        if "x" not in request:
            return [np.asarray(request[n], t).reshape(s) for n, t, s in self.inputs]
        body, items, at = base64.b64decode(request["x"]), [], 0
        for _, kind, shape in self.inputs:
            items.append(np.frombuffer(body, kind, int(np.prod(shape)), at).reshape(shape))
            at += items[-1].nbytes
        return items

    def batch(self, inputs):
        return [np.concatenate(rows) for rows in zip(*inputs)]

    def predict(self, items):
        return self.session.run(None, {n: x for (n, _, _), x in zip(self.inputs, items)})[0]

    def unbatch(self, output):
        return [output[i:i + 1] for i in range(len(output))]

    def encode_response(self, output):
        return output.tolist()


if __name__ == "__main__":
    apis = [Onnx(max_batch_size=s["max_batch"], batch_timeout=s["delay_ms"] / 1000, api_path="/" + s["name"])
            for s in peer["settings"]]
    server = ls.LitServer(apis, accelerator="cpu", workers_per_device=peer["settings"][0]["workers"], track_requests=False)
    server.run(host="127.0.0.1", port=peer["port"], generate_client_file=False, log_level="warning")
