"""Writes the models of TensorFlow and Keras that the tests convert into a directory."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import tensorflow as tf
from keras import layers


def words():
    """Two inputs, one of them words, and two outputs."""
    sentence = keras.Input((12,), dtype="int32", name="words")
    features = keras.Input((6,), name="features")
    x = layers.LSTM(8)(layers.Embedding(50, 8)(sentence))
    x = layers.LayerNormalization()(layers.Concatenate()([x, layers.Dense(8, activation="gelu")(features)]))
    outputs = [layers.Dense(1, activation="sigmoid", name="score")(x), layers.Dense(5, activation="softmax", name="classes")(x)]
    keras.Model([sentence, features], outputs).save("words.keras")


def cnn():
    model = keras.Sequential([
        keras.Input((16, 16, 3), name="image"),
        layers.Conv2D(8, 3, padding="same", activation="relu"), layers.BatchNormalization(), layers.MaxPooling2D(),
        layers.DepthwiseConv2D(3, padding="same"), layers.LeakyReLU(), layers.GlobalAveragePooling2D(),
        layers.Dense(10, activation="softmax", name="digits"),
    ])
    model.save("cnn.h5")
    model.save_weights("cnn.weights.h5")


def opened():
    """Sizes of images are left open."""
    image = keras.Input((None, None, 3), name="image")
    keras.Model(image, layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, activation="relu")(image))).save("open.keras")


def refused():
    """What cannot be converted, each for another reason."""
    fixed = keras.Input(batch_shape=(1, 4), name="x")
    keras.Model(fixed, layers.Dense(2)(fixed)).save("fixed.keras")
    x = keras.Input((4,), name="x")
    keras.Model(x, layers.Lambda(lambda t: t * 2)(x)).save("lambda.keras")


class Own(tf.Module):
    """Two signatures: one with a branch that depends on the data, one with an operator
    that ONNX does not have."""

    def __init__(self):
        super().__init__()
        self.kernel = tf.Variable(tf.random.stateless_normal((4, 3), (1, 2)))

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])
    def branch(self, x):
        y = x @ self.kernel
        return {"y": tf.cond(tf.reduce_sum(y) > 0, lambda: tf.nn.relu(y), lambda: y - 1), "top": tf.math.top_k(y, 2).indices}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), name="x")])
    def special(self, x):
        return {"y": tf.math.betainc(tf.abs(x), tf.abs(x), tf.abs(x))}


def main():
    keras.utils.set_random_seed(1)
    words()
    cnn()
    opened()
    refused()
    own = Own()
    tf.saved_model.save(own, "own", {"branch": own.branch, "special": own.special})
    tf.saved_model.save(own, "bare", {})


os.chdir(sys.argv[1])
main()
