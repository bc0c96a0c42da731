"""Prints sentence-transformers' vectors of texts: reference.py FOLDER TEXTS OUT. TEXTS is a JSON list, OUT
gets 32-bit floats."""

import json
import sys

from sentence_transformers import SentenceTransformer

folder, texts, out = sys.argv[1:]
with open(texts) as f:
    vectors = SentenceTransformer(folder, device="cpu").encode(json.load(f), batch_size=8, show_progress_bar=False)
vectors.astype("<f4").tofile(out)
