"""Asks an instance of a model of strings as Triton's client and TensorFlow Serving's do. The
model answers words with themselves and a row of scores, which it has not for the word bird. A second instance answers bfloat16 numbers with themselves.

Usage: clients_strings.py URL HALF-URL"""
import sys

import ml_dtypes
import numpy as np
import requests
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

url, half = sys.argv[1].rstrip("/"), sys.argv[2].rstrip("/")
client = triton.InferenceServerClient(url.removeprefix("http://"))
checks = 0


def check(what, got, want):
    global checks
    if got != want:
        sys.exit(f"{what}: got {got!r}, not {want!r}")
    checks += 1
    print(f"{what}: {got!r}")


def fails(what, call, status, *words):
    global checks
    try:
        got = call()
        sys.exit(f"{what}: it is answered: {got}")
    except InferenceServerException as e:
        if e.status() != status or not all(w in e.message() for w in words):
            sys.exit(f"{what}: {e.status()} {e.message()}, not {status} with {words}")
        print(f"{what}: {e.status()} {e.message()}")
    checks += 1


def infer(words, outputs=None, binary=True, server=client):
    s = triton.InferInput("s", [len(words)], "BYTES")
    s.set_data_from_numpy(np.array(words, dtype=np.object_), binary_data=binary)
    return server.infer("words", [s], outputs=outputs)


# Strings in every form, and outputs of which only one is binary.
wanted = triton.InferRequestedOutput
for sent in True, False:
    for text in True, False:
        r = infer([b"dog", b"cat"], [wanted("text", binary_data=text), wanted("score", binary_data=not text)], sent)
        form = f"sent as {'binary' if sent else 'JSON'}, text as {'binary' if text else 'JSON'}"
        check(form, [bytes(t) if text else t.encode() if isinstance(t, str) else bytes(t) for t in r.as_numpy("text")], [b"dog", b"cat"])
        check("its scores", r.as_numpy("score").tolist(), [[0.25, 0.5, 0.125], [1.0, 2.0, 3.0]])
        sizes = [("binary_data_size" in o.get("parameters", {})) for o in r.get_response()["outputs"]]
        check("binary outputs", sizes, [text, not text])
strings = [b"", b"\xff\xfe", "é😀".encode(), b"x" * (10 << 20)]
check("any bytes", [bytes(t) == s for t, s in zip(infer(strings, [wanted("text")]).as_numpy("text"), strings)], [True] * 4)
fails("bytes as JSON", lambda: infer([b"\xff"], [wanted("text", binary_data=False)]), "400", "not UTF-8", "binary data")
fails("a zero byte", lambda: infer([b"a\0b"], [wanted("text")]), "400", "zero byte")

# Classification, with names from labels.txt.
r = infer([b"dog", b"cat"], [wanted("score", class_count=2)])
check("classes", [[bytes(c).decode() for c in row] for row in r.as_numpy("score")],
      [["0.500000:1:dog", "0.250000:0:cat"], ["3.000000:2", "2.000000:1:dog"]])
fails("classes of strings", lambda: infer([b"dog"], [wanted("text", class_count=2)]), "400", "classification")

# What the client may ask beside.
check("platform", client.get_model_metadata("words")["platform"], "onnxruntime_onnx")
config = client.get_model_config("words")
check("config", [config["input"][0]["data_type"], config["input"][0]["dims"], config["max_batch_size"]], ["TYPE_STRING", [], 32])
stats = client.get_inference_statistics("words")["model_stats"][0]
if stats["inference_count"] < 8 or stats["inference_stats"]["success"]["count"] < 4 or not stats["batch_stats"]:
    sys.exit(f"statistics: {stats}")

# A word without scores is the client's error, and so are lengths that lie.
fails("a word outside the table", lambda: infer([b"bird"]), "400", "the model cannot compute with these inputs", "Gather", "out of data bounds")
fails("another model", lambda: client.infer("other", []), "404", "other")
r = requests.post(f"{url}/v2/models/words/infer", data=b'{"inputs":[{"name":"s","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":6}}]}\xff\xff\xff\xffab',
                  headers={"Inference-Header-Content-Length": "90"}, timeout=30)
check("a length that lies", [r.status_code, r.headers["Content-Type"], list(r.json())], [400, "application/json", ["error"]])

# TensorFlow Serving's forms.
for body, key, of in ({"instances": ["dog", {"b64": "Y2F0"}]}, "predictions", lambda v: [row["text"] for row in v]), \
        ({"inputs": ["dog", "cat"]}, "outputs", lambda v: v["text"]), ({"inputs": {"s": ["dog", {"b64": "Y2F0"}]}}, "outputs", lambda v: v["text"]):
    r = requests.post(f"{url}/v1/models/words:predict", json=body, timeout=30)
    r.raise_for_status()
    check(str(body), of(r.json()[key]), ["dog", "cat"])

# bfloat16 in binary only.
other = triton.InferenceServerClient(half.removeprefix("http://"))
x = triton.InferInput("x", [2, 2], "BF16")
x.set_data_from_numpy(np.array([[1.5, -2], [3e38, 0]], ml_dtypes.bfloat16))
got = other.infer("half", [x]).as_numpy("y")
if not np.allclose(np.asarray(got, np.float32), [[1.5, -2], [3e38, 0]], rtol=0.01):
    sys.exit(f"bfloat16: {got}")
fails("bfloat16 as JSON", lambda: other.infer("half", [x], outputs=[wanted("y", binary_data=False)]), "400", "BF16", "binary data")
print(f"{checks} checks")
