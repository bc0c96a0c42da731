"""Runs models with ONNX Runtime and says what it answers.

Each line of standard input is one JSON object: the path of a model, and requests. Each line of
standard output has the answers, or why the model cannot be loaded. Each request runs twice, the
second time with floats that differ by a millionth: "moved" are these outputs. Where the two
differ, float noise decides.
"""
import base64
import json
import sys

import numpy as np
import onnxruntime

TYPES = {"BOOL": "?", "UINT8": "u1", "INT8": "i1", "INT16": "<i2", "UINT16": "<u2", "INT32": "<i4", "UINT32": "<u4",
         "INT64": "<i8", "UINT64": "<u8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
NAMES = {np.dtype(code): name for name, code in TYPES.items()}


def decode(tensor):
    data = base64.b64decode(tensor["data"])
    if tensor["type"] != "BYTES":
        return np.frombuffer(data, TYPES[tensor["type"]]).reshape(tensor["shape"])
    words = []
    while data:
        end = 4 + int.from_bytes(data[:4], "little")
        words.append(data[4:end].decode())
        data = data[end:]
    return np.array(words, dtype=object).reshape(tensor["shape"])


def moved(array, rng):
    if array.dtype.kind != "f":
        return array
    # The product of scalars is no array.
    return np.asarray(array * (1 + 1e-6 * rng.uniform(-1, 1, array.shape)), dtype=array.dtype)


def matrix(value):
    """A sequence of maps, which ZipMap makes, as a matrix of numbers."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value], dtype=np.float32)
    return np.asarray(value)


def encode(array):
    if array.dtype.kind in "OUS":
        words = [word.encode() if isinstance(word, str) else word for word in array.ravel()]
        return "BYTES", b"".join(len(word).to_bytes(4, "little") + word for word in words)
    return NAMES[array.dtype], np.ascontiguousarray(array).tobytes()


def answer(session, request):
    inputs = {tensor["name"]: decode(tensor) for tensor in request}
    rng = np.random.default_rng(1)
    outputs = [matrix(value) for value in session.run(None, inputs)]
    again = [matrix(value) for value in session.run(None, {name: moved(array, rng) for name, array in inputs.items()})]
    made = []
    for output, first, second in zip(session.get_outputs(), outputs, again):
        kind, data = encode(first)
        one = {"name": output.name, "type": kind, "shape": list(first.shape), "data": base64.b64encode(data).decode()}
        if first.shape != second.shape:
            one["unstable"] = True
        elif kind != "BYTES":
            one["moved"] = base64.b64encode(encode(second)[1]).decode()
        made.append(one)
    return made


def answers(question):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(question["model"], options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return {"error": str(error)}
    made = []
    for request in question["requests"]:
        try:
            made.append({"outputs": answer(session, request)})
        except Exception as error:
            made.append({"error": str(error)})
    return {"answers": made}


for line in sys.stdin:
    print(json.dumps(answers(json.loads(line))), flush=True)
