import joblib
import numpy as np

# Names, types and shapes of what goes in and comes out; the shapes are those of one row.
inputs = {"lengths": ("float32", [4])}
outputs = {"species": ("float32", [3])}

model = None


def load(path):
    """Is called once, before the first request, with the path of the model."""
    global model
    model = joblib.load(path)


def handle(batch):
    """Is called with a list of requests, and gives a list with as many answers.

    A request has an array for each input, with a row for each instance in it. All rows
    are computed at once: that is what makes a batch worth its while.
    """
    rows = np.concatenate([request["lengths"] for request in batch])
    species = model.predict_proba(rows).astype("float32")
    ends = np.cumsum([len(request["lengths"]) for request in batch])
    return [{"species": answer} for answer in np.split(species, ends[:-1])]
