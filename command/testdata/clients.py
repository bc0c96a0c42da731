"""Asks an instance as its users do. The model answers an image with itself, so that
what it is given can be compared with what was meant.

Usage: clients.py URL [NAME]"""
import base64
import gzip
import io
import json
import sys
import zlib

import numpy as np
import requests
import tritonclient.http as triton
from PIL import Image
from tritonclient.utils import InferenceServerException

url, name = sys.argv[1].rstrip("/"), sys.argv[2]
side = 32
random = np.random.default_rng(1)
checks = 0


def same(what, got, want, tolerance=0.0):
    global checks
    got = np.asarray(got, np.float32)
    if got.shape != want.shape:
        sys.exit(f"{what}: the shape is {got.shape}, not {want.shape}")
    off = float(np.abs(got - want).max())
    if not off <= tolerance:
        sys.exit(f"{what}: off by {off}, more than {tolerance}")
    checks += 1
    print(f"{what}: largest difference {off:.2g}")


def says(what, response, status, *words):
    global checks
    text = response.text
    if response.status_code != status or not all(w in text for w in words):
        sys.exit(f"{what}: got {response.status_code} {text[:500]}, not {status} with {words}")
    checks += 1
    print(f"{what}: {response.status_code} {response.json()['error']}")


def post(data, path="/", **headers):
    headers = {key.replace("_", "-"): value for key, value in headers.items()}
    return requests.post(url + path, data=data, headers=headers, timeout=30)


def predictions(response):
    response.raise_for_status()
    return response.json()["predictions"]


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def file(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def as_input(image):
    """What a training pipeline does: 0 to 1, channels first."""
    return np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1)[None] / np.float32(255)


# Tensors.
x = random.random((3, 3, side, side), np.float32)
same("JSON rows", predictions(requests.post(url, json={"instances": x.tolist()}, timeout=30)), x)
r = requests.post(url, json={"inputs": x.tolist()}, timeout=30)
r.raise_for_status()
same("JSON columns", r.json()["outputs"], x)
same("bare elements", predictions(post(x.tobytes(), Content_Type="application/octet-stream")), x)
same(".npy", predictions(post(npy(x))), x)
r = post(npy(x), Content_Type="application/x-npy", Accept="application/x-npy")
r.raise_for_status()
same(".npy both ways", np.load(io.BytesIO(r.content)), x)
r = post(x.tobytes(), Content_Type="application/octet-stream", Accept="application/octet-stream")
same("bare both ways", np.frombuffer(r.content, np.float32).reshape(x.shape), x)

# Compressed.
text = json.dumps({"instances": x.tolist()}).encode()
for coding, pack in ("gzip", gzip.compress), ("deflate", zlib.compress):
    r = post(pack(text), Content_Encoding=coding, Accept_Encoding=coding)
    if r.headers.get("Content-Encoding") != coding:
        sys.exit(f"{coding}: the answer is {r.headers}")
    same(f"JSON, {coding} both ways", predictions(r), x)
if "Content-Encoding" in post(text, Accept_Encoding="identity").headers:
    sys.exit("the answer is compressed for a client that does not take it")

# Images.
photo = Image.fromarray(random.integers(0, 256, (side, side, 3), np.uint8), "RGB")
same("PNG", predictions(post(file(photo, "PNG"), Content_Type="image/png")), as_input(photo))
smooth = photo.resize((200, 300), Image.BICUBIC)
for kind, options in ("JPEG", {"quality": 95}), ("JPEG", {"quality": 80, "progressive": True}), ("PNG", {}):
    data = file(smooth, kind, **options)
    want = as_input(Image.open(io.BytesIO(data)).resize((side, side), Image.BILINEAR))
    same(f"{kind} {options}, resized as Pillow does", predictions(post(data)), want, 0.03 if kind == "JPEG" else 0.01)
for kind, options in ("GIF", {}), ("WEBP", {"lossless": True}), ("WEBP", {"quality": 95}), ("BMP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}):
    data = file(smooth, kind, **options)
    want = as_input(Image.open(io.BytesIO(data)).convert("RGB").resize((side, side), Image.BILINEAR))
    same(f"{kind} {options}, resized as Pillow does", predictions(post(data)), want, 0.03 if "quality" in options else 0.01)
for mode in "L", "P", "RGBA", "1", "I;16":
    image = Image.new(mode, (7, 5), 1) if mode == "I;16" else smooth.convert(mode)
    post(file(image, "PNG")).raise_for_status()
    checks += 1
post(file(smooth.convert("CMYK"), "JPEG")).raise_for_status()
text = base64.b64encode(file(photo, "PNG")).decode()
same("images in JSON", predictions(requests.post(url, json={"instances": [{"b64": text}] * 2}, timeout=30)), np.repeat(as_input(photo), 2, 0))
r = requests.post(f"{url}/v1/models/{name}:predict", json={"instances": [{"image": {"b64": text}}]}, timeout=30)
same("images in JSON, as TensorFlow Serving", predictions(r), as_input(photo))

# Triton's client.
client = triton.InferenceServerClient(url.removeprefix("http://"))
if not (client.is_server_live() and client.is_server_ready() and client.is_model_ready(name)):
    sys.exit("Triton's client finds it not ready")
print(client.get_model_metadata(name)["inputs"])
for binary in True, False:
    for packed in None, "gzip", "deflate":
        tensor = triton.InferInput("image", list(x.shape), "FP32")
        tensor.set_data_from_numpy(x, binary_data=binary)
        wanted = triton.InferRequestedOutput("same", binary_data=binary)
        result = client.infer(name, [tensor], outputs=[wanted], request_id="7",
                              request_compression_algorithm=packed, response_compression_algorithm=packed)
        if result.get_response()["id"] != "7":
            sys.exit("the id is lost")
        same(f"tritonclient, binary {binary}, {packed}", result.as_numpy("same"), x)
images = triton.InferInput("image", [2], "BYTES")
images.set_data_from_numpy(np.array([file(photo, "PNG")] * 2, dtype=np.object_))
same("tritonclient, images", client.infer(name, [images]).as_numpy("same"), np.repeat(as_input(photo), 2, 0))
try:
    wrong = triton.InferInput("image", [1, 784], "FP32")
    wrong.set_data_from_numpy(np.zeros((1, 784), np.float32))
    client.infer(name, [wrong])
    sys.exit("a wrong shape is taken")
except InferenceServerException as e:
    if 'input "image" has the shape [1,784]' not in e.message():
        sys.exit(f"tritonclient: {e}")
    print("tritonclient:", e)

# What goes wrong says why.
says("float64", post(npy(x.astype(np.float64))), 400, "FP64", "FP32")
says("big endian", post(npy(x.astype(">f4"))), 400, "big endian", "astype")
says("Fortran's order", post(npy(np.asfortranarray(x))), 400, "numpy.ascontiguousarray")
says("one row without its batch", post(npy(x[0])), 400, "image", "[3,32,32]")
says("half a row", post(x.tobytes()[:-4], Content_Type="application/octet-stream"), 400, "image", "a row")
says("an SVG", post(b"<svg/>", Content_Type="image/svg+xml"), 400, "not a JPEG, PNG, GIF, WebP, BMP or TIFF")
says("a large GIF", post(b"GIF89a" + (20000).to_bytes(2, "little") * 2 + bytes(20)), 400, "20000x20000", "send it smaller")
says("a cut JPEG", post(file(smooth, "JPEG")[:500]), 400, "image")
says("a large image", post(file(Image.new("RGB", (5000, 5000)), "PNG")), 400, "5000x5000", "send it smaller")
says("a bomb", post(gzip.compress(bytes(64 << 20)), Content_Encoding="gzip"), 413, "limit")
says("another coding", post(b"{}", Content_Encoding="br"), 415, "gzip and deflate")
print(f"{checks} checks")
