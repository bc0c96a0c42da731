"""PyTorch's exported programs, TorchScript and modules become ONNX."""
import os
import re
import sys
import zipfile

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import common
from tell import Wrong, explain, main, versions

# What the two exporters of PyTorch give without further conversion.
OPSET, SCRIPT_OPSET = 18, 17
EXPORT = ("torch.export.save(torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim('batch')},)), 'model.pt2')")
OPERATOR = re.compile(r"<OpOverload\(op='([\w.]+)'|operator '?([\w:]+)'? to ONNX|[Oo]perator '?([\w:.]+)'? .*(?:not supported|unsupported)")


def form(path):
    """What the file holds: "exported", "script" or "pickle"."""
    if not zipfile.is_zipfile(path):
        return "pickle"
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
    if any(n.endswith("serialized_exported_program.json") or re.search(r"(^|/)models/[^/]+\.json$", n) for n in names):
        return "exported"
    if any("/code/" in n for n in names):
        return "script"
    return "pickle"


def numpy_name(dtype):
    return str(dtype).removeprefix("torch.")


def flat(found):
    """The tensors that a model gave, and their names if it gave a dict."""
    if isinstance(found, dict):
        return list(found.values()), [str(n) for n in found]
    found = list(found) if isinstance(found, (list, tuple)) else [found]
    return found, ["output"] if len(found) == 1 else [f"output_{n}" for n in range(len(found))]


class Subject:
    """A model as a function of tensors in a row."""

    def __init__(self, module, inputs):
        self.module, self.inputs, self.outputs = module, inputs, []

    def run(self, arrays):
        import torch

        with torch.no_grad():
            found, self.outputs = flat(self.module(*[torch.from_numpy(a) for a in arrays]))
        for t in found:
            if not isinstance(t, torch.Tensor):
                raise Wrong(f"the model gives {type(t).__name__} among its outputs; each has to be a tensor")
        return [t.detach().numpy() for t in found]


def needed(job, path):
    """The inputs as --input tells them, where the file does not."""
    if not job["inputs"]:
        raise Wrong(f"{path} does not tell what the model takes: give --input NAME=TYPE[?,...] for each input, in the order of forward, "
                    "as --input x=float32[?,3,224,224]")
    common.check_batch(job["inputs"], "write ? as the first dimension of --input")
    return job["inputs"]


def exported(job):
    import torch

    program = torch.export.load(job["in"])
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    inputs = []
    for name in program.graph_signature.user_inputs:
        value = values.get(name)
        if not isinstance(value, torch.Tensor):
            raise Wrong(f"the program's input {name!r} is no tensor; export it with tensors alone")
        shape = [d if isinstance(d, int) else None for d in value.shape]
        inputs.append(common.info(name, numpy_name(value.dtype), shape))
    common.check_batch(inputs, f"export it with an open one, {EXPORT}")
    subject = Subject(program.module(), common.given(job, inputs))
    subject.program = program
    return subject


def script(job):
    import torch

    return Subject(torch.jit.load(job["in"], map_location="cpu").eval(), needed(job, job["in"]))


def pickled(job):
    import torch

    path = job["in"]
    if not job["trust"]:
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise Wrong(f"{path} is a pickled module: loading it runs code that is in it. Write the program in place of it, {EXPORT}; "
                        "or, if you trust the file and its classes lie beside it or are installed, give --trust") from error
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        try:
            found = torch.load(path, map_location="cpu", weights_only=False)
        except (ImportError, AttributeError) as error:
            raise Wrong(f"{path} needs the classes of the model, and they are not beside it: {explain(error)}") from error
    if not isinstance(found, torch.nn.Module):
        raise Wrong(f"{path} holds weights (a {type(found).__name__}) and no model; where the model's code is, write {EXPORT}")
    return Subject(found.eval(), needed(job, path))


def dynamic(inputs):
    """Which dimensions stay open: the batch is the same for all inputs."""
    import torch

    batch = torch.export.Dim("batch")
    return tuple({0: batch} | {n: torch.export.Dim(f"{i['name']}_{n}") for n, d in enumerate(i["shape"]) if n and d < 0} for i in inputs)


def to_onnx(job, subject, kind):
    import torch

    names = [i["name"] for i in subject.inputs]
    example = tuple(torch.from_numpy(a) for a in common.random(subject.inputs, 2, job))
    try:
        if kind == "script":
            open_ = {i["name"]: {n: f"{i['name']}_{n}" if n else "batch" for n, d in enumerate(i["shape"]) if d < 0} for i in subject.inputs}
            open_ |= {name: {0: "batch"} for name in subject.outputs}
            torch.onnx.export(subject.module, example, job["out"], dynamo=False, opset_version=job["opset"] or SCRIPT_OPSET,
                              input_names=names, output_names=subject.outputs, dynamic_axes=open_)
            return
        program = getattr(subject, "program", None)
        if program is None:
            program = torch.export.export(subject.module, example, dynamic_shapes=dynamic(subject.inputs))
        made = torch.onnx.export(program, (), dynamo=True, opset_version=job["opset"] or OPSET, input_names=names,
                                 output_names=subject.outputs, external_data=False, verbose=False)
        made.save(job["out"], external_data=False)
    except Exception as error:
        raise told(error) from error


def told(error):
    """The operator for which there is no conversion, if that is why."""
    chain, e = [], error
    while e is not None and len(chain) < 10:
        chain.append(e)
        e = e.__cause__ or e.__context__
    for e in chain:
        text = str(e)
        if "No ONNX function" in text or "No decomp" in text or "nsupported" in type(e).__name__ or "not supported" in text:
            if found := OPERATOR.search(text):
                name = next(g for g in found.groups() if g)
                return Wrong("PyTorch's operators cannot all be said in ONNX", [{"type": name, "count": 1, "example": ""}])
    return Wrong(f"PyTorch cannot convert it: {explain(chain[-1])}")


def single(job):
    """One file with all weights, of which ONNX Runtime reads at most 2 GB."""
    import onnx

    model = onnx.load(job["out"])
    onnx.checker.check_model(model)
    folder = os.path.dirname(job["out"])
    for name in os.listdir(folder):
        if name.startswith(os.path.basename(job["out"])) and name.endswith(".data"):
            onnx.save(model, job["out"])
            os.remove(os.path.join(folder, name))
    return next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def convert(job, tell):
    tell.step("loading PyTorch and the model")
    kind = form(job["in"])
    subject = {"exported": exported, "script": script, "pickle": pickled}[kind](job)
    tell.step("running the model on random inputs")
    found = {"inputs": subject.inputs, "cases": common.cases(job, subject.inputs, subject.run)}
    tell.step("converting to ONNX")
    to_onnx(job, subject, kind)
    return found | {"opset": single(job), "outputs": subject.outputs,
                    "versions": versions("torch", "onnxscript", "onnx") if kind != "script" else versions("torch", "onnx")}


if __name__ == "__main__":
    main(convert)
