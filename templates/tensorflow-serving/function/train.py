"""Makes the SavedModel in the folder model, the example: pip install tensorflow-cpu scikit-learn."""
import keras
from sklearn.datasets import load_iris

keras.utils.set_random_seed(1)
lengths, kinds = load_iris(return_X_y=True)

scale = keras.layers.Normalization(name="scale")
scale.adapt(lengths.astype("float32"))
model = keras.Sequential(
    [
        keras.Input((4,), name="lengths"),
        scale,
        keras.layers.Dense(16, activation="relu"),
        keras.layers.Dense(3, activation="softmax", name="species"),
    ],
    name="iris",
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(lengths.astype("float32"), kinds, epochs=200, verbose=0)
print(model.evaluate(lengths.astype("float32"), kinds, verbose=0))
model.export("model/1", verbose=False)
