"""A predictor of KServe's own server, as its documents describe custom ones. The server has no batching."""

import asyncio

from kserve import Model, ModelServer

from peer_texts import Embedder, peer


class Texts(Model):
    def load(self) -> bool:
        self.embed = Embedder()
        self.ready = True
        return True

    async def predict(self, payload, headers=None, response_headers=None):
        if peer["threaded"]:
            vectors, _ = await asyncio.to_thread(self.embed, payload["instances"])
        else:
            vectors, _ = self.embed(payload["instances"])
        return {"predictions": vectors.tolist()}


if __name__ == "__main__":
    model = Texts("subject")
    model.load()
    ModelServer(http_port=peer["port"], workers=peer["workers"], enable_grpc=False, enable_latency_logging=False).start([model])
