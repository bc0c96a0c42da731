"""Keras models and SavedModels become ONNX or SavedModels."""
import collections
import logging
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["KERAS_BACKEND"] = "tensorflow"

import common
from tell import Wrong, main, versions

OPSET = 17


class Subject:
    """A model as a function of tensors in a row that gives outputs by name."""

    def __init__(self, inputs, call, outputs, tracked):
        self.inputs, self.call, self.outputs, self.tracked = inputs, call, outputs, tracked

    def specs(self, job):
        import tensorflow as tf

        return [tf.TensorSpec([None if d < 0 else d for d in i["shape"]], common.DTYPES[i["datatype"]], name=i["name"])
                for i in common.given(job, self.inputs)]

    def run(self, arrays):
        import tensorflow as tf

        found = self.call(*[tf.constant(a) for a in arrays])
        return [found[name].numpy() for name in self.outputs]


def described(job, inputs):
    infos = [common.info(name, dtype.name if hasattr(dtype, "name") else str(dtype), shape) for name, dtype, shape in inputs]
    how = "save it with None as the first dimension"
    common.check_batch(infos, how)
    return infos


def from_keras(job):
    import keras

    path = job["in"]
    try:
        model = keras.models.load_model(path, compile=False, safe_mode=not job["trust"])
    except Exception as error:
        raise Wrong(loading(path, str(error))) from error
    if not getattr(model, "inputs", None):
        raise Wrong(f"{path} has no inputs: its shapes were not known when it was saved; build it, or call it once, before model.save")
    inputs = described(job, [(t.name, t.dtype, t.shape) for t in model.inputs])
    names = list(getattr(model, "output_names", None) or [model.layers[-1].name])

    # A Sequential has one of each, and tells no structure of them.
    alone = isinstance(model, keras.Sequential)
    takes, output = (model.inputs[0], model.outputs[0]) if alone else (model.input, model.output)

    def call(*tensors):
        found = model(keras.tree.pack_sequence_as(takes, list(tensors)), training=False)
        if isinstance(found, dict):
            return found
        return dict(zip(names, keras.tree.flatten(found)))

    if isinstance(output, dict):
        names = list(output)
    if len(set(names)) != len(keras.tree.flatten(output)):
        names = [f"output_{n}" for n in range(len(keras.tree.flatten(output)))]
    return Subject(inputs, call, names, model)


def loading(path, text):
    """Why Keras does not load a file, and what to do."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    if "Lambda" in text and ("safe_mode" in text or "unsafe" in text):
        return f"{path} has a Lambda layer, which is code of its author's; if you trust the file, give --trust"
    if "Could not locate class" in text or "Unknown layer" in text or "custom_objects" in text:
        return (f"{path} has a layer of its author's own, whose code is not in the file ({first[:200]}); "
                "convert it where that code is: model.export(DIR), and then the SavedModel DIR")
    if "No model config found" in text or "No model found in config" in text:
        return f"{path} holds weights and no model; write the whole with model.save"
    return f"Keras cannot load {path}: {first[:300]}"


def from_saved_model(job):
    import tensorflow as tf

    model = tf.saved_model.load(job["in"])
    signatures = dict(model.signatures)
    name = job["signature"] or ("serving_default" if "serving_default" in signatures else "")
    if not name and len(signatures) == 1:
        name = next(iter(signatures))
    if not signatures:
        raise Wrong("the SavedModel has no signature; write it with model.export(), or with tf.saved_model.save(..., signatures=...)")
    if name not in signatures:
        raise Wrong(f"which signature? --signature takes one of {', '.join(signatures)}")
    signature = signatures[name]
    specs = signature.structured_input_signature[1]
    inputs = described(job, [(n, s.dtype, s.shape) for n, s in specs.items() if check_rank(n, s)])
    names = [i["name"] for i in inputs]

    def call(*tensors):
        return signature(**dict(zip(names, tensors)))

    return Subject(inputs, call, list(signature.structured_outputs), model)


def check_rank(name, spec):
    if spec.shape.rank is None:
        raise Wrong(f"{name!r} of the model has a shape of which nothing is known; save it with a signature that gives the shapes")
    return True


class Errors(logging.Handler):
    """What the converter logs as errors: it goes on after them."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage().splitlines()[0])


def add_operators():
    """What the converter does not have, and ONNX can say: Keras' GELU is of erfc."""
    import numpy as np
    from tf2onnx import utils
    from tf2onnx.handler import tf_op

    @tf_op("Erfc")
    class Erfc:
        @classmethod
        def version_9(cls, ctx, node, **kwargs):
            shapes, types = node.output_shapes, node.output_dtypes
            one = ctx.make_const(utils.make_name("one"), np.array(1, utils.map_onnx_to_numpy_type(types[0])))
            ctx.remove_node(node.name)
            erf = ctx.make_node("Erf", node.input, shapes=shapes, dtypes=types)
            ctx.make_node("Sub", [one.output[0], erf.output[0]], outputs=node.output, name=node.name, shapes=shapes, dtypes=types)


def to_onnx(job, subject):
    import onnx
    import tensorflow as tf
    import tf2onnx

    specs = subject.specs(job)

    @tf.function(input_signature=specs, autograph=False)
    def serve(*tensors):
        return subject.call(*tensors)

    add_operators()
    errors = Errors()
    logging.getLogger("tf2onnx").addHandler(errors)
    model, _ = tf2onnx.convert.from_function(serve, input_signature=specs, opset=job["opset"] or OPSET)
    unknown = collections.Counter()
    example = {}
    foreign(onnx, model.graph, job["opset"] or OPSET, unknown, example)
    if unknown:
        raise Wrong("TensorFlow's operators cannot all be said in ONNX",
                    [{"type": t, "count": n, "example": example[t]} for t, n in unknown.most_common()])
    if errors.lines:
        raise Wrong(f"the converter failed: {errors.lines[0]}")
    arrange(model.graph.input, [s.name for s in specs])
    arrange(model.graph.output, subject.outputs)
    onnx.checker.check_model(model)
    onnx.save(model, job["out"])


def foreign(onnx, graph, opset, count, example):
    """The operators that ONNX does not have: the converter leaves them as they are."""
    for node in graph.node:
        standard = node.domain in ("", "ai.onnx")
        if not standard or not onnx.defs.has(node.op_type, max_inclusive_version=opset, domain=""):
            count[node.op_type] += 1
            example.setdefault(node.op_type, node.name)
        for attribute in node.attribute:
            for below in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                foreign(onnx, below, opset, count, example)


def arrange(values, names):
    """The graph's inputs or outputs in the model's order."""
    by_name = {v.name: v for v in values}
    if set(by_name) - set(names):
        raise Wrong(f"the converter names {', '.join(sorted(by_name))} what the model names {', '.join(names)}")
    ordered = [by_name[name] for name in names if name in by_name]
    copies = [type(v).FromString(v.SerializeToString()) for v in ordered]
    del values[:]
    values.extend(copies)


def to_saved_model(job, subject):
    import keras

    archive = keras.export.ExportArchive()
    archive.track(subject.tracked)
    archive.add_endpoint(name="serve", fn=subject.call, input_signature=subject.specs(job))
    archive.write_out(job["out"], verbose=False)


def convert(job, tell):
    tell.step("loading TensorFlow and the model")
    subject = from_saved_model(job) if job["kind"] == "savedmodel" else from_keras(job)
    inputs = common.given(job, subject.inputs)
    tell.step("running the model on random inputs")
    found = {"inputs": inputs, "outputs": subject.outputs, "versions": versions("tensorflow-cpu", "keras")}
    if job["to"] == "savedmodel":
        tell.step("writing a SavedModel")
        to_saved_model(job, subject)
        tell.step("running what was written")
        new = from_saved_model({**job, "in": job["out"], "signature": ""})
        new.outputs = subject.outputs
        names = [i["name"] for i in new.inputs]
        order = [[i["name"] for i in inputs].index(name) for name in names]
        found["cases"] = common.cases(job, inputs, subject.run, lambda arrays: new.run([arrays[n] for n in order]))
        return found
    found["cases"] = common.cases(job, inputs, subject.run)
    tell.step("converting to ONNX")
    to_onnx(job, subject)
    found["opset"] = job["opset"] or OPSET
    found["versions"] |= versions("tf2onnx", "onnx")
    return found


if __name__ == "__main__":
    main(convert)
