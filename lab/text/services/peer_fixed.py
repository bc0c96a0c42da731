"""ONNX Runtime behind FastAPI, as guides to serving embeddings describe it: a queue, a maximum batch and
a fixed window in which requests are collected. It answers as OpenAI's embeddings."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import ORJSONResponse

from peer_texts import Embedder, peer

embed = Embedder()
waiting = asyncio.Queue()
one = ThreadPoolExecutor(1)


async def batches():
    loop = asyncio.get_running_loop()
    while True:
        batch = [await waiting.get()]
        closes = loop.time() + peer["window_ms"] / 1000
        while len(batch) < peer["max_batch"]:
            try:
                batch.append(waiting.get_nowait())
            except asyncio.QueueEmpty:
                left = closes - loop.time()
                if left <= 0:
                    break
                try:
                    batch.append(await asyncio.wait_for(waiting.get(), left))
                except asyncio.TimeoutError:
                    break
        try:
            vectors, tokens = await loop.run_in_executor(one, embed, [text for text, _ in batch])
            for (_, answer), vector, n in zip(batch, vectors, tokens):
                if not answer.cancelled():
                    answer.set_result((vector, int(n)))
        except Exception as e:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(e)


@asynccontextmanager
async def lifespan(_):
    task = asyncio.create_task(batches())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health():
    return {"status": "ok"}


@app.post("/v1/embeddings")
async def embeddings(request: Request):
    body = await request.json()
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    answers = [asyncio.get_running_loop().create_future() for _ in texts]
    for text, answer in zip(texts, answers):
        waiting.put_nowait((text, answer))
    done = [await answer for answer in answers]
    tokens = sum(n for _, n in done)
    return ORJSONResponse({
        "object": "list",
        "model": body.get("model", ""),
        "data": [{"object": "embedding", "index": i, "embedding": vector.tolist()} for i, (vector, _) in enumerate(done)],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })
