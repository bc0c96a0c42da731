"""ONNX Runtime's quantizer makes int8 models of an ONNX model."""
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.shape_inference import quant_pre_process

from tell import Wrong, explain, main, versions

# Operators whose weights are quantised: with the activations, whose ranges come from
# calibration, and alone. Ranges that each run calculates anew (quantize_dynamic) are not used:
# they come from all rows of a batch, so a row's answer would depend on its neighbours.
WEIGHTY = {"static": {"Conv", "MatMul", "Gemm"}, "weights": {"MatMul", "Gemm"}}
# Weights that are quantised alone have a scale for each block of this many.
BLOCK = 32
# Operators between them that pass int8 on. All others stay in float: softmax, norms,
# sigmoids and the like lose too much.
PASSING = ["Add", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"]
# Operators of models that are quantised already.
QUANTISED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "MatMulInteger", "ConvInteger", "DynamicQuantizeMatMul", "MatMulNBits"}
# An operator is sensitive if 8 bits leave less than this ratio of signal to noise, in dB,
# in the bulk of what it reads or writes. Evenly spread values have about 50 dB. The bulk is
# without the largest hundredth: a few outliers make the step too large for all others.
SENSITIVE, BULK = 20, 99
# The maximum number of a tensor's elements that are looked at.
ELEMENTS = 50_000
# The rows from which sensitivity is measured.
ROWS = 8
# Per-channel weights need this version of ONNX's operators.
OPSET = 13


def vector_instructions():
    """Whether the CPU adds products of 8 bits without overflow. Without these instructions
    weights get 7 bits, because sums of two products would overflow 16 bits."""
    with open("/proc/cpuinfo") as file:
        return any(" avx512_vnni" in line or " avx_vnni" in line for line in file if line.startswith("flags"))


def read(path):
    model = onnx.load(path)
    kinds = {n.op_type for n in model.graph.node}
    if kinds & QUANTISED:
        raise Wrong("the model is quantised already")
    if any(i.data_type == TensorProto.FLOAT16 for i in model.graph.initializer):
        raise Wrong("the model's weights are FP16; only those of FP32 models are quantised")
    if model.ByteSize() > 1_900_000_000:
        raise Wrong("the model has more than 1.9 GB; larger ones are not quantised")
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=OPSET)
    if opset < OPSET:
        try:
            model = onnx.version_converter.convert_version(model, 17)
        except Exception as error:
            raise Wrong(f"its operators are of version {opset}, int8 needs {OPSET}, and they cannot be converted: {explain(error)}") from error
    return model


class Rows(CalibrationDataReader):
    """The rows for calibration, one at a time."""

    def __init__(self, arrays):
        self.arrays, self.next = arrays, 0
        self.count = len(next(iter(arrays.values())))

    def get_next(self):
        if self.next == self.count:
            return None
        self.next += 1
        return {name: a[self.next - 1:self.next] for name, a in self.arrays.items()}


def rounding(value):
    """The power of a tensor's bulk, and that of what 8 bits lose of it."""
    step = (max(0.0, float(value.max())) - min(0.0, float(value.min()))) / 255
    some = value.ravel()[::max(1, value.size // ELEMENTS)].astype(np.float64)
    some = some[np.abs(some) <= np.percentile(np.abs(some), BULK)]
    if not step > 0:
        return 0.0, 0.0
    return float(np.square(some).sum()), float(np.square(some - np.round(some / step) * step).sum())


def sensitive(path, arrays):
    """The nodes that 8 bits would harm: those that read or write such a tensor."""
    model = onnx.load(path)
    kinds = WEIGHTY["static"] | set(PASSING)
    nodes = [n for n in model.graph.node if n.op_type in kinds]
    constant = {i.name for i in model.graph.initializer}
    own = {o.name for o in model.graph.output}
    inputs = {i.name for i in model.graph.input} - constant
    names = sorted({t for n in nodes for t in [*n.input, *n.output] if t and t not in constant} - inputs)
    model.graph.output.extend(onnx.ValueInfoProto(name=t) for t in names if t not in own)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    signal, noise, rows = {}, {}, Rows(arrays)
    for _ in range(min(ROWS, rows.count)):
        row = rows.get_next()
        for name, value in [*zip(names, session.run(names, row)), *row.items()]:
            if value.dtype == np.float32 and value.size:
                power, lost = rounding(value)
                signal[name], noise[name] = signal.get(name, 0) + power, noise.get(name, 0) + lost
    bad = {n for n in noise if signal[n] < noise[n] * 10 ** (SENSITIVE / 10)}
    return [n.name for n in nodes if bad & {*n.input, *n.output}]


def flatten(model):
    """Gives biases of the shape [1,n] the shape [n]: the quantizer only knows these, and a
    Gemm adds both alike. scikit-learn's models have the first."""
    biases = {n.input[2] for n in model.graph.node if n.op_type == "Gemm" and len(n.input) > 2}
    for i in model.graph.initializer:
        users = [n for n in model.graph.node if i.name in n.input]
        if i.name in biases and len(i.dims) == 2 and i.dims[0] == 1 and all(n.op_type == "Gemm" and n.input[2] == i.name for n in users):
            del i.dims[0]


def work(job, tell):
    model = read(job["in"])
    tell.step("preparing the model for int8")
    plain, prepared = os.path.join(job["work"], "plain.onnx"), os.path.join(job["work"], "prepared.onnx")
    onnx.save(model, plain)
    # Symbolic shapes need one more package, and are of no use here.
    quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    model = onnx.load(prepared)
    flatten(model)
    onnx.save(model, prepared)
    kinds = {n.op_type for n in model.graph.node}
    reduce = not vector_instructions()
    arrays = {i["name"]: np.load(os.path.join(job["work"], i["file"]), allow_pickle=False) for i in job["rows"]}

    def static(out):
        left = sensitive(prepared, arrays)
        quantize_static(prepared, out, Rows(arrays), quant_format=QuantFormat.QDQ, per_channel=True, reduce_range=reduce,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                        op_types_to_quantize=[*WEIGHTY["static"], *PASSING], nodes_to_exclude=left)
        return left

    def weights(out):
        # Accuracy level 4 computes in 8 bits, with a scale for each block of each row.
        config = DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=True, accuracy_level=4, bits=8)
        products = ONNXModel(onnx.load(prepared))
        products.replace_gemm_with_matmul()
        quantizer = MatMulNBitsQuantizer(products.model, algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(out, False)
        return []

    made = []
    for way, make in (("static", static), ("weights", weights)):
        if not kinds & WEIGHTY[way]:
            continue
        tell.step(f"quantising to int8, {way}")
        out = os.path.join(job["work"], f"{way}.onnx")
        entry = {"way": way, "file": os.path.basename(out), "float": [], "error": ""}
        try:
            entry["float"] = make(out)
            weighty = {n.op_type for n in onnx.load(out, load_external_data=False).graph.node}
            if not weighty & QUANTISED:
                raise Wrong("no operator could be quantised")
        except Exception as error:
            import traceback

            traceback.print_exc()
            entry["error"] = explain(error)
        made.append(entry)
    if not made:
        raise Wrong("the model has no operator that is faster in int8")
    return {"made": made, "versions": versions("onnxruntime")}


if __name__ == "__main__":
    main(work)
