"""Asks a function over gRPC with Triton's Python client. The model answers with its input.

Usage: grpc_triton.py ADDRESS FUNCTION INPUT OUTPUT WIDTH"""
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

address, name, given, wanted, width = *sys.argv[1:5], int(sys.argv[5])
random = np.random.default_rng(1)


def check(what, holds):
    if not holds:
        sys.exit(f"{what}: not as expected")
    print(what)


def tensor(array):
    t = triton.InferInput(given, list(array.shape), "FP32")
    t.set_data_from_numpy(array)
    return t


def same(result, array):
    return np.array_equal(result.as_numpy(wanted), array)


def late(client, given):
    """Asks until an answer is late. gRPC makes at least a millisecond of a deadline, in which one may come."""
    for _ in range(1000):
        client.infer(name, [given], client_timeout=1e-6)


def with_triton():
    client = triton.InferenceServerClient(address)
    check("live, ready", client.is_server_live() and client.is_server_ready() and client.is_model_ready(name))
    check("an absent model", not client.is_model_ready("absent"))
    check("server metadata", client.get_server_metadata().name == "faas-infer")
    told = client.get_model_metadata(name)
    check("model metadata", [(i.name, i.datatype, list(i.shape)) for i in told.inputs] == [(given, "FP32", [-1, -1])])

    row = random.random((1, width), np.float32)
    result = client.infer(name, [tensor(row)], request_id="one", client_timeout=30)
    check("one row", same(result, row) and result.get_response().id == "one")
    result = client.infer(name, [tensor(row)], outputs=[triton.InferRequestedOutput(wanted, class_count=2)], compression_algorithm="gzip")
    best = row[0].argmax()
    check("classes of a compressed request", result.as_numpy(wanted)[0, 0].decode().endswith(f":{best}"))

    rows = [random.random((1 + i % 2, width), np.float32) for i in range(64)]
    answers = queue.Queue()
    for i, r in enumerate(rows):
        client.async_infer(name, [tensor(r)], lambda result, error, i=i: answers.put((i, result, error)))
    got = [answers.get(timeout=30) for _ in rows]
    check("64 at once", all(error is None and same(result, rows[i]) for i, result, error in got))

    client.start_stream(lambda result, error: answers.put((result, error)))
    for i, r in enumerate(rows):
        client.async_stream_infer(name, [tensor(r)], request_id=str(i))
    client.async_stream_infer("absent", [tensor(rows[0])])
    got = [answers.get(timeout=30) for _ in range(len(rows) + 1)]
    client.stop_stream()
    check("a stream, in order", all(e is None and same(a, r) and a.get_response().id == str(i) for i, (r, (a, e)) in enumerate(zip(rows, got))))
    check("an error in a stream", "absent" in str(got[-1][1]))

    for what, call, code in [
        ("an absent function", lambda: client.infer("absent", [tensor(row)]), "NOT_FOUND"),
        ("a wrong shape", lambda: client.infer(name, [tensor(row[0])]), "INVALID_ARGUMENT"),
        ("a deadline", lambda: late(client, tensor(row)), "DEADLINE_EXCEEDED"),
    ]:
        try:
            call()
            sys.exit(f"{what}: an answer")
        except InferenceServerException as e:
            check(f"{what}: {e.message()}", code in str(e.status()) or code in str(e))
    client.close()


with_triton()
print("all as expected")
