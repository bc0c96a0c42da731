"""Makes the bundle of a Python function: models.py handler|keras DIRECTORY."""
import os
import sys

HANDLER = '''import joblib
import numpy as np

inputs = {"pixels": ("float32", [64])}
outputs = {"digits": ("float32", [10])}
model = None


def load(path):
    global model
    model = joblib.load(path)


def handle(batch):
    rows = np.concatenate([request["pixels"] for request in batch])
    digits = model.predict_proba(rows).astype("float32")
    ends = np.cumsum([len(request["pixels"]) for request in batch])
    return [{"digits": answer} for answer in np.split(digits, ends[:-1])]
'''

what, folder = sys.argv[1:]


def write(name, text):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)


if what == "handler":
    import joblib
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    pixels, digits = load_digits(return_X_y=True)
    joblib.dump(RandomForestClassifier(50, random_state=1).fit(pixels, digits), os.path.join(folder, "model.joblib"))
    write("handler.py", HANDLER)
    write("bundle.yaml", "name: handler\nengine: python\nmodel: model.joblib\nhandler: handler.py\nrequirements: requirements.txt\n")
else:
    import keras

    keras.utils.set_random_seed(1)
    dense = keras.layers.Dense
    mlp = keras.Sequential([keras.Input((256,), name="x"), dense(512, activation="relu"), dense(512, activation="relu"), dense(10, activation="softmax")])
    mlp.save(os.path.join(folder, "model.keras"))
    write("bundle.yaml", "name: keras\nengine: tensorflow\nmodel: model.keras\n")
