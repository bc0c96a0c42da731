"""What the converters share: the inputs, random ones, the arrays that are compared."""
import os

import numpy as np

from tell import Wrong, explain

DTYPES = {
    "BOOL": "bool", "UINT8": "uint8", "INT8": "int8", "INT16": "int16", "UINT16": "uint16",
    "INT32": "int32", "UINT32": "uint32", "INT64": "int64", "UINT64": "uint64",
    "FP16": "float16", "FP32": "float32", "FP64": "float64",
}
NAMES = {numpy: name for name, numpy in DTYPES.items()}
# How large a dimension is taken to be that the model leaves open and --input does not give.
OPEN = 8


def info(name, dtype, shape):
    """A tensor's description; open dimensions are -1."""
    if dtype not in NAMES:
        raise Wrong(f"{name!r} has the type {dtype}, which cannot be served; known are {', '.join(NAMES)}")
    return {"name": name, "datatype": NAMES[dtype], "shape": [-1 if d is None else int(d) for d in shape]}


def given(job, known):
    """The inputs' descriptions with the sizes that --input gives; known is the model's own."""
    by_name = {i["name"]: i for i in job["inputs"]}
    names = [i["name"] for i in known]
    for name in by_name:
        if name not in names:
            raise Wrong(f"--input names {name!r}; the model's inputs are {', '.join(names)}")
    out = []
    for own in known:
        asked = by_name.get(own["name"], own)
        if asked["datatype"] != own["datatype"] or len(asked["shape"]) != len(own["shape"]) or \
                any(d >= 0 and d != a for d, a in zip(own["shape"][1:], asked["shape"][1:])):
            raise Wrong(f"--input says {text(asked)}, and the model has {text(own)}")
        out.append({**own, "shape": asked["shape"]})
    return out


def text(i):
    """A description as --input has it."""
    return f"{i['name']}={DTYPES[i['datatype']]}[{','.join('?' if d < 0 else str(d) for d in i['shape'])}]"


def check_batch(infos, how):
    """Requests are put together along the first dimension, so that has to be open."""
    for i in infos:
        if not i["shape"]:
            raise Wrong(f"{i['name']!r} of the model has no batch dimension")
        if i["shape"][0] >= 0:
            raise Wrong(f"{i['name']!r} of the model has a fixed batch of {i['shape'][0]}: {how}")


def random(infos, rows, job):
    """Inputs of so many rows: numbers from -1 to 1, whole ones from 0 on."""
    rng = np.random.default_rng([job["seed"], rows])
    arrays = []
    for i in infos:
        shape = [rows] + [OPEN if d < 0 else d for d in i["shape"][1:]]
        dtype = np.dtype(DTYPES[i["datatype"]])
        if dtype.kind == "f":
            arrays.append(rng.uniform(-1, 1, shape).astype(dtype))
        elif dtype.kind == "b":
            arrays.append(rng.integers(0, 2, shape).astype(dtype))
        else:
            arrays.append(rng.integers(0, min(job["below"], np.iinfo(dtype).max), shape).astype(dtype))
    return arrays


def cases(job, infos, old, new=None):
    """What the old model answers, and where it runs here, the new one: arrays in files."""
    found = []
    for rows in job["batches"]:
        arrays = random(infos, rows, job)
        case = {"rows": rows, "inputs": save(job, f"b{rows}-in", arrays),
                "old": save(job, f"b{rows}-old", run(old, arrays, "the model")), "new": []}
        if new is not None:
            case["new"] = save(job, f"b{rows}-new", run(new, arrays, "what was written"))
        found.append(case)
    return found


def run(model, arrays, what):
    try:
        return [np.ascontiguousarray(a) for a in model(arrays)]
    except Exception as error:
        shapes = ", ".join(str(list(a.shape)) for a in arrays)
        raise Wrong(f"{what} does not run on random inputs of the shapes {shapes} ({explain(error)}); "
                    f"dimensions that it leaves open were taken as {OPEN}, and --input sets them") from error


def save(job, prefix, arrays):
    files = []
    for n, array in enumerate(arrays):
        files.append(f"{prefix}-{n}.npy")
        np.save(os.path.join(job["work"], files[-1]), array, allow_pickle=False)
    return files
