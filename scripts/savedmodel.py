#!/usr/bin/env python3
"""Makes the SavedModels that the tests of model/savedmodel read.

    python3 -m venv /tmp/tensorflow && /tmp/tensorflow/bin/pip install tensorflow-cpu
    /tmp/tensorflow/bin/python scripts/savedmodel.py [NAME...]
"""

import gzip
import io
import os
import pathlib
import sys
import tarfile
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import tensorflow as tf
from keras import layers

v1 = tf.compat.v1
OUT = pathlib.Path(__file__).parent.parent / "model" / "savedmodel" / "testdata"


def dense(path):
    x = keras.Input((6,), name="features")
    y = layers.Dense(3, activation="softmax")(layers.Dense(8, activation="relu")(x))
    keras.Model(x, y).export(path, verbose=False)


class Two(tf.Module):
    """Two signatures that share a function."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(tf.random.stateless_normal((6, 4), (1, 2)), name="kernel")

    @tf.function(input_signature=[tf.TensorSpec((None, 6))])
    def hidden(self, x):
        return tf.tanh(x @ self.kernel)

    @tf.function(input_signature=[tf.TensorSpec((None, 6), name="x")])
    def embed(self, x):
        return {"embedding": tf.math.l2_normalize(self.hidden(x), axis=1)}

    @tf.function(input_signature=[tf.TensorSpec((None, 6), name="x")])
    def classify(self, x):
        values, classes = tf.math.top_k(self.hidden(x), k=2)
        return {"scores": values, "classes": classes}


def signatures(path):
    two = Two()
    tf.saved_model.save(two, path, {"embed": two.embed, "classify": two.classify})


def tf1(path):
    """A TensorFlow 1 graph. It contains loss, gradients and optimiser beside the served
    part; its variables are references, and its condition uses Switch and Merge."""
    v1.disable_control_flow_v2()
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        image = v1.placeholder(tf.float32, (None, 8, 8, 1), "image")
        label = v1.placeholder(tf.int32, (None,), "label")
        training = v1.placeholder_with_default(False, (), "training")
        kernel = v1.get_variable("kernel", (3, 3, 1, 4), use_resource=False)
        x = tf.nn.relu(v1.nn.conv2d(image, kernel, strides=(1, 2, 2, 1), padding="SAME"))
        x = v1.cond(training, lambda: v1.nn.dropout(x, rate=0.5), lambda: tf.identity(x))
        x = tf.reshape(x, (-1, 4 * 4 * 4), "flat")
        weights = v1.get_variable("weights", (64, 3), use_resource=True)
        bias = v1.get_variable("bias", (3,), use_resource=False)
        logits = v1.nn.xw_plus_b(x, weights, bias, "logits")
        scores = tf.nn.softmax(logits, name="scores")
        loss = tf.reduce_mean(v1.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
        v1.train.AdamOptimizer().minimize(loss)
        session.run(v1.global_variables_initializer())
        builder = v1.saved_model.Builder(path)
        info = v1.saved_model.build_tensor_info
        predict = v1.saved_model.build_signature_def(
            {"image": info(image)}, {"scores": info(scores)}, "tensorflow/serving/predict"
        )
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": predict})
        builder.save()
    v1.enable_control_flow_v2()


MODELS = (dense, signatures, tf1)


def pack(path, target):
    """Writes a tar.gz that is the same for the same files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for file in sorted(pathlib.Path(path).rglob("*")):
            if file.is_file() and file.name != "fingerprint.pb":
                entry = tarfile.TarInfo(str(file.relative_to(path)))
                entry.size = file.stat().st_size
                tar.addfile(entry, io.BytesIO(file.read_bytes()))
    target.write_bytes(gzip.compress(plain.getvalue(), 9, mtime=0))


def main(names):
    OUT.mkdir(parents=True, exist_ok=True)
    for make in MODELS:
        name = make.__name__
        if names and name not in names:
            continue
        keras.utils.clear_session()
        keras.utils.set_random_seed(1)
        with tempfile.TemporaryDirectory() as path:
            path = os.path.join(path, name)
            make(path)
            pack(path, OUT / f"{name}.tar.gz")
        print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
