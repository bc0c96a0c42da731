"""Asks a function over gRPC with KServe's Python client, whose messages cannot be in one process with Triton's. The
model answers with its input.

Usage: grpc_kserve.py ADDRESS FUNCTION INPUT OUTPUT WIDTH"""
import asyncio
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest

address, name, given, wanted, width = *sys.argv[1:5], int(sys.argv[5])


async def main():
    client = InferenceGRPCClient(url=address)
    if not (await client.is_server_live() and await client.is_server_ready() and await client.is_model_ready(name)):
        sys.exit("it is not live or not ready")
    row = np.random.default_rng(1).random((1, width), np.float32)
    for binary in True, False:
        tensor = InferInput(given, list(row.shape), "FP32")
        tensor.set_data_from_numpy(row, binary_data=binary)
        answer = await client.infer(InferRequest(model_name=name, infer_inputs=[tensor], request_id="two"))
        (output,) = answer.outputs
        if output.name != wanted or answer.id != "two" or not np.array_equal(output.as_numpy().reshape(1, width), row):
            sys.exit(f"with binary data {binary}: {answer}")
    await client.close()
    print("all as expected")


asyncio.run(main())
