"""Makes model.onnx, the example: pip install onnx scikit-learn.

With Keras or PyTorch, `faas-infer model convert` makes an ONNX file of what you have.
"""
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

lengths, kinds = load_iris(return_X_y=True)
trained = LogisticRegression(max_iter=1000).fit(lengths, kinds)

graph = helper.make_graph(
    [
        helper.make_node("Gemm", ["lengths", "weights", "bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["species"], axis=1),
    ],
    "iris",
    # The first dimension is the batch: it must have a name, not a number.
    [helper.make_tensor_value_info("lengths", TensorProto.FLOAT, ["batch", 4])],
    [helper.make_tensor_value_info("species", TensorProto.FLOAT, ["batch", 3])],
    [
        numpy_helper.from_array(trained.coef_.T.astype("float32"), "weights"),
        numpy_helper.from_array(trained.intercept_.astype("float32"), "bias"),
    ],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, "model.onnx")
