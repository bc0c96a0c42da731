"""A server with TensorFlow Serving's flags and REST API, made from TensorFlow itself.

It is not TensorFlow Serving, whose program no package registry has: it is for tests of
what speaks to one. It runs real SavedModels, writes its answers as TensorFlow Serving
does and refuses batches that are larger than its batching parameters say.
"""

import argparse
import base64
import http.server
import json
import pathlib
import re

import tensorflow as tf
from tensorflow.core.framework.types_pb2 import DataType

parser = argparse.ArgumentParser()
for flag in ("rest_api_port", "port", "tensorflow_intra_op_parallelism", "tensorflow_inter_op_parallelism", "file_system_poll_wait_seconds"):
    parser.add_argument("--" + flag, type=int, required=True)
for flag in ("model_name", "model_base_path", "enable_batching", "batching_parameters_file"):
    parser.add_argument("--" + flag, required=True)
args = parser.parse_args()
tf.config.threading.set_intra_op_parallelism_threads(args.tensorflow_intra_op_parallelism)
batching = pathlib.Path(args.batching_parameters_file).read_text()
largest = int(re.search(r"max_batch_size \{ value: (\d+) \}", batching)[1])
wait = int(re.search(r"batch_timeout_micros \{ value: (\d+) \}", batching)[1])
print("batch", largest, "wait", wait, flush=True)

version = max((d for d in pathlib.Path(args.model_base_path).iterdir() if d.name.isdigit()), key=lambda d: int(d.name))
loaded = tf.saved_model.load(str(version))


def named(spec, name):
    rank = spec.shape.rank
    dims = [] if rank is None else [{"size": str(-1 if d is None else d), "name": ""} for d in spec.shape]
    dtype = DataType.Name(spec.dtype.as_datatype_enum)
    return {"dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": rank is None}, "name": name}


def described(signature):
    return {
        "inputs": {n: named(s, n + ":0") for n, s in signature.structured_input_signature[1].items()},
        "outputs": {n: named(s, "StatefulPartitionedCall:0") for n, s in signature.structured_outputs.items()},
        "method_name": "tensorflow/serving/predict",
    }


class Refused(Exception):
    pass


def decoded(value):
    """A value whose strings in base64 are their bytes."""
    if isinstance(value, list):
        return [decoded(v) for v in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def encoded(name, value):
    """A value as TensorFlow Serving writes it: bytes in base64 if the output's name says so."""
    if isinstance(value, list):
        return [encoded(name, v) for v in value]
    if not isinstance(value, bytes):
        return value
    return {"b64": base64.b64encode(value).decode()} if name.endswith("_bytes") else value.decode()


def predict(request):
    name = request.get("signature_name", "serving_default")
    if name not in loaded.signatures:
        raise Refused(f"Serving signature name: \"{name}\" not found in signature def")
    f = loaded.signatures[name]
    specs = f.structured_input_signature[1]
    given = request["inputs"]
    if not isinstance(given, dict):
        given = {next(iter(specs)): given}
    if set(given) != set(specs):
        raise Refused(f"input keys are {sorted(given)}, the signature has {sorted(specs)}")
    tensors = {n: tf.constant(decoded(v), specs[n].dtype) for n, v in given.items()}
    rows = len(next(iter(tensors.values())))
    print("rows", rows, flush=True)
    if rows > largest:
        raise Refused(f"Task size {rows} is larger than maximum input batch size {largest}")
    outputs = {n: encoded(n, t.numpy().tolist()) for n, t in f(**tensors).items()}
    return {"outputs": next(iter(outputs.values())) if len(outputs) == 1 else outputs}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value):
        body = json.dumps(value, indent=1).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        model = "/v1/models/" + args.model_name
        if self.path == model:
            self.answer(200, {"model_version_status": [{"version": version.name, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]})
        elif self.path == model + "/metadata":
            self.answer(200, {
                "model_spec": {"name": args.model_name, "signature_name": "", "version": version.name},
                "metadata": {"signature_def": {"signature_def": {n: described(f) for n, f in loaded.signatures.items()}}},
            })
        else:
            self.answer(404, {"error": f"Malformed request: GET {self.path}"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != f"/v1/models/{args.model_name}:predict":
            return self.answer(404, {"error": f"Malformed request: POST {self.path}"})
        try:
            self.answer(200, predict(json.loads(body)))
        except (Refused, tf.errors.OpError, ValueError, TypeError) as e:
            self.answer(400, {"error": str(e)})

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", args.rest_api_port), Handler).serve_forever()
