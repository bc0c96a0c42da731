"""Asks functions that embed and rerank texts with the clients that people have, unmodified. Compares the answers with
those of the same models in ONNX Runtime and Hugging Face's tokenizers, one text at a time and without padding.

Usage: text_clients.py URL EMBED EMBED_DIR RERANK RERANK_DIR"""
import asyncio
import math
import sys

import cohere
import numpy as np
import onnxruntime
import openai
from langchain_openai import OpenAIEmbeddings
from tokenizers import Tokenizer

url, embed, embed_dir, rerank, rerank_dir = sys.argv[1:]

TEXTS = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "naïve café — Übermut, 東京 and 🙂",
    "[CLS] is no token in a text, nor is [MASK].",
    "x",
    "A long text has many words. " * 30,
    "A text that is too long is cut. " * 400,
]
QUERY = "What do people eat?"


def check(what, holds):
    if not holds:
        sys.exit(f"{what}: not as expected")
    print(what, flush=True)


class Reference:
    """A model in ONNX Runtime, for one text at a time."""

    def __init__(self, folder, limit):
        self.tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(limit)
        # What a user writes is text, also where it looks like a special token.
        self.tokenizer.encode_special_tokens = True
        self.session = onnxruntime.InferenceSession(folder + "/model.onnx")

    def run(self, encoding):
        feeds = {"input_ids": encoding.ids, "attention_mask": [1] * len(encoding.ids), "token_type_ids": encoding.type_ids}
        return self.session.run(None, {k: np.array([v], np.int64) for k, v in feeds.items()})[0][0]

    def vector(self, text):
        mean = self.run(self.tokenizer.encode(text)).mean(0)
        return mean / np.linalg.norm(mean)

    def score(self, query, document):
        return 1 / (1 + math.exp(-self.run(self.tokenizer.encode(query, document))[0]))


def same(answers, vectors):
    got = np.array([a.embedding for a in answers])
    return [a.index for a in answers] == list(range(len(vectors))) and close(got, vectors)


def close(got, vectors):
    return np.shape(got) == np.shape(vectors) and np.abs(np.array(got) - np.array(vectors)).max() <= 1e-5


def refused(what, kind, words, call):
    try:
        call()
    except kind as e:
        check(f"{what}: {e}", words in str(e))
        return
    sys.exit(f"{what}: an answer")


def with_openai(reference):
    vectors = [reference.vector(t) for t in TEXTS]
    ids = [reference.tokenizer.encode(t).ids for t in TEXTS]
    for base in (url + "/v1", f"{url}/function/{embed}/v1"):
        client = openai.OpenAI(base_url=base, api_key="sk-any", max_retries=0)
        create = client.embeddings.create
        one = create(model=embed, input=TEXTS[0])
        check(f"OpenAI's client at {base}", same(one.data, vectors[:1]) and one.model == embed)
        check("usage", one.usage.prompt_tokens == len(ids[0]) and one.usage.total_tokens == len(ids[0]))
        many = create(model=embed, input=TEXTS)
        check("a list", same(many.data, vectors))
        check("usage of a list", many.usage.total_tokens == sum(map(len, ids)))
        check("numbers instead of base64", same(create(model=embed, input=TEXTS[:3], encoding_format="float").data, vectors[:3]))
        check("tokens", same(create(model=embed, input=ids[0]).data, vectors[:1]))
        check("lists of tokens", same(create(model=embed, input=ids[:3]).data, vectors[:3]))
        short = [v[:64] / np.linalg.norm(v[:64]) for v in vectors[:3]]
        check("dimensions", same(create(model=embed, input=TEXTS[:3], dimensions=64).data, short))

        refused("an empty text", openai.BadRequestError, "empty", lambda: create(model=embed, input=""))
        refused("no text", openai.BadRequestError, "empty", lambda: create(model=embed, input=[]))
        refused("a token that the model lacks", openai.BadRequestError, "30522", lambda: create(model=embed, input=[101, 30522, 102]))
        refused("too many dimensions", openai.BadRequestError, "384", lambda: create(model=embed, input="x", dimensions=385))
        refused("an unknown model", openai.NotFoundError, "absent", lambda: create(model="absent", input="x"))

    client = openai.OpenAI(base_url=url + "/v1", api_key="sk-any", max_retries=0)
    listed = {m.id for m in client.models.list()}
    check(f"the list of models: {listed}", listed == {embed, rerank})
    check("one model", client.models.retrieve(embed).id == embed)
    refused("an absent model", openai.NotFoundError, embed, lambda: client.models.retrieve("absent"))


async def many_at_once(reference):
    """Requests of one to four texts, whose lengths differ, share batches."""
    texts = ["word " * (1 + i * 7 % 90) for i in range(96)]
    vectors = [reference.vector(t) for t in texts]
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="sk-any") as client:
        async def ask(begin, end):
            return same((await client.embeddings.create(model=embed, input=texts[begin:end])).data, vectors[begin:end])

        spans = [(i, min(i + 1 + i % 4, len(texts))) for i in range(0, len(texts), 2)]
        check("many at once", all(await asyncio.gather(*(ask(*s) for s in spans))))


def with_langchain(reference):
    client = OpenAIEmbeddings(model=embed, base_url=url + "/v1", api_key="sk-any", check_embedding_ctx_length=False)
    vectors = [reference.vector(t) for t in TEXTS]
    check("LangChain's documents", close(client.embed_documents(TEXTS), vectors))
    check("LangChain's query", close(client.embed_query(TEXTS[0]), vectors[0]))


def with_cohere(reference):
    scores = [reference.score(QUERY, t) for t in TEXTS]
    order = sorted(range(len(TEXTS)), key=lambda i: -scores[i])
    for kind, base in ((cohere.ClientV2, url), (cohere.Client, url), (cohere.ClientV2, f"{url}/function/{rerank}")):
        client = kind(api_key="any", base_url=base)
        for n in (None, 3):
            answer = client.rerank(model=rerank, query=QUERY, documents=TEXTS, **({"top_n": n} if n else {}))
            check(f"Cohere's {kind.__name__} at {base}, top {n}", [r.index for r in answer.results] == order[:n]
                  and all(abs(r.relevance_score - scores[r.index]) <= 1e-5 for r in answer.results))
        errors = cohere.errors
        refused("an unknown reranker", errors.NotFoundError, "absent", lambda: client.rerank(model="absent", query="a", documents=["b"]))
        refused("no document", errors.BadRequestError, "documents", lambda: client.rerank(model=rerank, query="a", documents=[]))
    refused("an embedder as reranker", (errors.BadRequestError, errors.NotFoundError), embed,
            lambda: cohere.ClientV2(api_key="any", base_url=url).rerank(model=embed, query="a", documents=["b"]))


def main():
    embedder = Reference(embed_dir, 256)
    with_openai(embedder)
    asyncio.run(many_at_once(embedder))
    with_langchain(embedder)
    with_cohere(Reference(rerank_dir, 512))
    print("all as expected")


main()
