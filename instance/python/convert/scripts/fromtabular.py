"""Models of scikit-learn, XGBoost, LightGBM and CatBoost become ONNX: one table of numbers
in, labels and probabilities or values out, each as a plain tensor."""
import os
import warnings

import numpy as np

import common
from tell import Wrong, explain, main, versions

OPSET, ML_OPSET = 17, 3
NAMES = {1: "float32", 7: "int64", 8: "str", 11: "float64"}
# Of how many rows string labels are compared, in ONNX's own evaluator, which is slow.
LABELLED = 8


class Subject:
    """A model: its inputs' number and name, what it answers by output, its ONNX form."""

    def __init__(self, width, onnx, answer, packages, notes=(), estimator=None, categories=None):
        self.width, self.onnx, self.answer, self.packages = width, onnx, answer, packages
        self.notes, self.estimator, self.categories = list(notes), estimator, categories or {}


def table(job, width, doubles=False):
    """The only input. --input may name it."""
    types = ("FP32", "FP64") if doubles else ("FP32",)
    if not job["inputs"]:
        return common.info("input", "float32", [None, width])
    given = job["inputs"][0]
    if len(job["inputs"]) > 1 or given["datatype"] not in types or given["shape"] != [-1, width]:
        raise Wrong(f"--input says {', '.join(map(common.text, job['inputs']))}; the model takes one table, as --input input=float32[?,{width}]")
    return given


def softmax(margin):
    e = np.exp(margin - margin.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def columns(values):
    return values if values.ndim == 2 else values.reshape(len(values), -1)


def pairs(p):
    return np.stack([1 - p, p], axis=1)


# scikit-learn, and the classes of the others that keep to its interface.

def unpickled(job):
    import joblib
    from sklearn.exceptions import InconsistentVersionWarning

    path = job["in"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = joblib.load(path)
        except Exception as error:
            by = ", ".join(f"{n} {v}" for n, v in versions("scikit-learn", "xgboost-cpu", "lightgbm", "catboost", "numpy").items())
            raise Wrong(f"{path} cannot be loaded with {by} ({explain(error)}); convert it where it was written, with skl2onnx, "
                        "or serve it with the template python-infer and its own packages in requirements.txt") from error
    notes = []
    for w in caught:
        if issubclass(w.category, InconsistentVersionWarning):
            by, here = w.message.original_sklearn_version, w.message.current_sklearn_version
            notes.append(f"{w.message.estimator_name} was written by scikit-learn {by} and is read by {here}, which may answer differently; "
                         "write it again with this version, or compare with your own data")
        elif not issubclass(w.category, (DeprecationWarning, FutureWarning)):
            notes.append(str(w.message).strip().splitlines()[0])
    return model, list(dict.fromkeys(notes))


def register():
    """The converters of XGBoost's and LightGBM's classes inside pipelines of scikit-learn."""
    import lightgbm
    import xgboost
    from onnxmltools.convert.lightgbm.operator_converters.LightGbm import convert_lightgbm
    from onnxmltools.convert.xgboost.operator_converters.XGBoost import convert_xgboost
    from skl2onnx import update_registered_converter
    from skl2onnx.common.shape_calculator import (calculate_linear_classifier_output_shapes as classes,
                                                  calculate_linear_regressor_output_shapes as values)

    options = {"nocl": [True, False], "zipmap": [True, False, "columns"], "raw_scores": [True, False]}
    for kind, name, shapes, convert in (
            (lightgbm.LGBMClassifier, "LightGbmLGBMClassifier", classes, convert_lightgbm),
            (lightgbm.LGBMRegressor, "LightGbmLGBMRegressor", values, convert_lightgbm),
            (xgboost.XGBClassifier, "XGBoostXGBClassifier", classes, convert_xgboost),
            (xgboost.XGBRegressor, "XGBoostXGBRegressor", values, convert_xgboost)):
        update_registered_converter(kind, name, shapes, convert, options=options if shapes is classes else {"split": None})


def from_pickle(job):
    model, notes = unpickled(job)
    root = type(model).__module__.split(".")[0]
    if root == "catboost":
        return catboost_subject(job, model, notes)
    if root == "lightgbm" and type(model).__name__ == "Booster":
        return lightgbm_subject(job, model, notes)
    if root == "xgboost":
        return xgboost_subject(job, model.get_booster() if hasattr(model, "get_booster") else model, notes)
    if not hasattr(model, "fit") or not (hasattr(model, "predict") or hasattr(model, "transform")):
        raise Wrong(f"{job['in']} holds a {type(model).__module__}.{type(model).__name__}, which is no model of scikit-learn, XGBoost, "
                    "LightGBM or CatBoost; serve it with the template python-infer")
    return sklearn_subject(job, model, notes)


def sklearn_subject(job, model, notes):
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    from sklearn.preprocessing import StandardScaler

    width = getattr(model, "n_features_in_", None)
    if width is None and len(job["inputs"]) == 1 and len(job["inputs"][0]["shape"]) == 2:
        width = job["inputs"][0]["shape"][1]
    if not width or width < 0:
        raise Wrong(f"{type(model).__name__} does not say how many numbers a row has; give --input 'input=float32[?,N]' if it takes N numbers, "
                    "and serve it with the template python-infer if it takes text")
    register()
    given = table(job, int(width), doubles=True)
    kind = DoubleTensorType if given["datatype"] == "FP64" else FloatTensorType

    last = model.steps[-1][1] if hasattr(model, "steps") else model
    if getattr(last, "flatten_transform", False):
        last.flatten_transform = False  # Of transform alone, and the converter refuses it.

    def converted(options):
        found = convert_sklearn(model, initial_types=[(given["name"], kind([None, int(width)]))], options=options,
                                target_opset={"": job["opset"] or OPSET, "ai.onnx.ml": ML_OPSET})
        rename(found.graph, {"output_label": "label", "output_probability": "probabilities"})
        return found

    def onnx():
        # A division, as the scaler does it: a tree after it may have a row's value as threshold.
        options = {StandardScaler: {"div": "div"}}
        if hasattr(model, "predict_proba"):
            options[id(last)] = {"zipmap": False}
        for asked in (options, {id(last): {"nocl": False}}):
            try:
                return converted(asked)
            except NameError:  # An option that the converter of this class does not have.
                continue
        return converted(None)

    def answer(name, x):
        if name == "label" or name == "variable" and hasattr(model, "predict"):
            return model.predict(x)
        if "probabilit" in name:
            return model.predict_proba(x) if hasattr(model, "predict_proba") else None
        if name == "variable":
            return model.transform(x)
        if name == "scores":
            return model.transform(x) if hasattr(model, "transform") else model.decision_function(x)
        return None

    return Subject(int(width), onnx, answer, ("scikit-learn", "skl2onnx"), notes, model)


# The libraries' own files.

def from_xgboost(job):
    import xgboost

    with open(job["in"], "rb") as file:
        begin = file.read(2)
    # The library goes by the ending. In UBJSON a key's length follows the brace.
    link = os.path.join(job["work"], "model.ubj" if begin[:1] == b"{" and begin[1:] in b"iUIlL" else "model.json")
    os.symlink(job["in"], link)
    booster = xgboost.Booster()
    try:
        booster.load_model(link)
    except Exception as error:
        raise Wrong(f"XGBoost {xgboost.__version__} cannot load {job['in']} ({explain(error)})") from error
    return xgboost_subject(job, booster)


def xgboost_subject(job, booster, notes=()):
    import json

    import xgboost
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    config = json.loads(booster.save_config())["learner"]
    if (name := config["gradient_booster"]["name"]) != "gbtree":
        raise Wrong(f"the model's booster is {name}, and onnxmltools converts gbtree alone; train it with booster=\"gbtree\", "
                    "or serve it with the template python-infer")
    if "c" in (booster.feature_types or []):
        raise Wrong("the model has categorical features, which ONNX's trees do not; train it with one-hot columns, "
                    "or serve it with the template python-infer")
    best = booster.attr("best_iteration")
    if best is not None and booster.attr("scikit_learn") is not None:
        booster = booster[:int(best) + 1]  # As the class predicts that wrote it.
    booster.feature_names = booster.feature_types = None
    width = booster.num_features()
    objective = config["objective"]["name"]
    if objective.startswith("rank:"):
        booster.set_param({"objective": "reg:squarederror"})  # Both answer with the trees' sum.
    given = table(job, width)

    def onnx():
        return convert_xgboost(booster, initial_types=[(given["name"], FloatTensorType([None, width]))], target_opset=min(job["opset"] or 15, 15))

    def answer(name, x):
        rows = xgboost.DMatrix(x)
        if objective.startswith("multi:"):
            p = softmax(booster.predict(rows, output_margin=True))
        elif objective == "binary:logistic":
            p = pairs(booster.predict(rows))
        else:
            return booster.predict(rows)
        return p.argmax(axis=1) if name == "label" else p

    return Subject(width, onnx, answer, ("xgboost-cpu", "onnxmltools"), notes)


def from_lightgbm(job):
    import lightgbm

    try:
        return lightgbm_subject(job, lightgbm.Booster(model_file=job["in"]))
    except lightgbm.basic.LightGBMError as error:
        raise Wrong(f"LightGBM {lightgbm.__version__} cannot load {job['in']} ({explain(error)})") from error


def lightgbm_subject(job, booster, notes=()):
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    width = booster.num_feature()
    given = table(job, width)
    dump = booster.dump_model(num_iteration=1)
    objective = dump.get("objective", "").split(" ")[0]
    # The features that are numbers of categories. Other numbers than these are rounded by LightGBM alone.
    infos = [dump["feature_infos"].get(name, {}) for name in dump["feature_names"]]
    categories = {n: info["values"] for n, info in enumerate(infos) if info.get("values")}

    def onnx():
        return convert_lightgbm(booster, initial_types=[(given["name"], FloatTensorType([None, width]))], zipmap=False,
                                target_opset=min(job["opset"] or 15, 15))

    def answer(name, x):
        found = booster.predict(x)
        if objective == "binary":
            found = pairs(found)
        elif objective not in ("multiclass", "multiclassova"):
            return found
        return found.argmax(axis=1) if name == "label" else found

    return Subject(width, onnx, answer, ("lightgbm", "onnxmltools"), notes, categories=categories)


def from_catboost(job):
    import catboost

    with open(job["in"], "rb") as file:
        form = "cbm" if file.read(4) == b"CBM1" else "json"
    model = catboost.CatBoost()
    try:
        model.load_model(job["in"], format=form)
    except Exception as error:
        raise Wrong(f"CatBoost {catboost.__version__} cannot load {job['in']} ({explain(error)})") from error
    return catboost_subject(job, model)


def catboost_subject(job, model, notes=()):
    import catboost
    import onnx as library

    if model.get_cat_feature_indices() or model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise Wrong("the model has categorical, text or embedding features, which CatBoost does not write to ONNX; "
                    "serve it with the template python-infer")
    width = len(model.feature_names_)
    given = table(job, width)
    classes = list(model.classes_)
    exponent = str(model.get_all_params().get("loss_function", "")).split(":")[0] in ("Poisson", "Tweedie")

    def onnx():
        path = os.path.join(job["work"], "catboost.onnx")
        model.save_model(path, format="onnx")
        found = library.load(path)
        rename(found.graph, {found.graph.input[0].name: given["name"]})
        if exponent:  # Which the export leaves out.
            rename(found.graph, {"predictions": "predictions_log"})
            found.graph.node.append(library.helper.make_node("Exp", ["predictions_log"], ["predictions"]))
            found.graph.output[0].name = "predictions"
        return found

    def answer(name, x):
        kind = "Class" if name == "label" else "Probability" if classes else "Exponent" if exponent else "RawFormulaVal"
        found = catboost.CatBoost.predict(model, x, prediction_type=kind)
        return found.ravel() if name == "label" else found

    return Subject(width, onnx, answer, ("catboost",), notes)


# The ONNX model.

def rename(graph, names):
    """Gives tensors other names. One that has such a name already gets another."""
    used = {n for node in graph.node for n in node.output}
    names = {old: new for old, new in names.items() if old in used or old in {i.name for i in graph.input}}
    names |= {new: new + "_inner" for new in names.values() if new in used and new not in names}
    for node in graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
    for value in [*graph.input, *graph.output]:
        value.name = names.get(value.name, value.name)


def drop_zipmap(model):
    """Probabilities as a tensor in place of a dictionary for each row."""
    from onnx import helper

    graph = model.graph
    for node in [n for n in graph.node if n.op_type == "ZipMap"]:
        graph.node.remove(node)
        kept = [o for o in graph.output if o.name != node.output[0]]
        del graph.output[:]
        graph.output.extend(kept)
        rename(graph, {node.input[0]: node.output[0]})
        graph.output.append(helper.make_tensor_value_info(node.output[0], 1, None))


def tidy(model, given, old):
    """Gives the batch a name, and the outputs the shapes that the model's answers have."""
    import onnx
    from onnx import helper

    graph = model.graph
    types = {o.name: o.type.tensor_type.elem_type for o in graph.output}
    names = [o.name for o in graph.output if o.name in old]
    del graph.input[:], graph.output[:]
    code = {"FP32": 1, "FP64": 11}[given["datatype"]]
    graph.input.append(helper.make_tensor_value_info(given["name"], code, ["batch", *given["shape"][1:]]))
    graph.output.extend(helper.make_tensor_value_info(n, types[n], ["batch", *old[n].shape[1:]]) for n in names)
    if not any(o.domain == "" for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid("", 13))
    model.ir_version = max(model.ir_version, 8)
    onnx.checker.check_model(model)
    return types


def ranges(model, given, width):
    """Between which numbers each feature is interesting: around the thresholds of the trees
    that see it as it is."""
    low, high = np.full(width, -3.0), np.full(width, 3.0)
    for node in model.graph.node:
        if not node.op_type.startswith("TreeEnsemble") or node.input[0] != given["name"]:
            continue
        by = {a.name: a for a in node.attribute}
        modes = np.array(by["nodes_modes"].strings) != b"LEAF"
        features = np.array(by["nodes_featureids"].ints)[modes]
        values = np.array(by["nodes_values"].floats)[modes]
        for feature in np.unique(features):
            seen = values[(features == feature) & (np.abs(values) < 1e30)]
            if len(seen) and feature < width:
                span = max(seen.max() - seen.min(), abs(seen.max()) / 2, 1e-3)
                low[feature], high[feature] = seen.min() - span / 2, seen.max() + span / 2
    return low, high


def scaled(model, low, high):
    """The same for a model whose first step scales its columns."""
    for step in [model, *[s for _, s in getattr(model, "steps", [])]]:
        centre, scale = getattr(step, "mean_", getattr(step, "center_", None)), getattr(step, "scale_", None)
        if centre is not None and scale is not None and np.shape(centre) == np.shape(low) == np.shape(scale):
            return centre + low * scale, centre + high * scale
    return low, high


def trees_of(estimator):
    """The trees of a forest of scikit-learn, or of the last step of a pipeline."""
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    found = [last] if hasattr(last, "tree_") else list(np.ravel(getattr(last, "estimators_", [])))
    return [t.tree_ for t in found if hasattr(t, "tree_")]


def mark_missing(model, estimator):
    """Says which way missing values go, which skl2onnx leaves out for forests."""
    from onnx import helper

    trees = [t for t in trees_of(estimator) if hasattr(t, "missing_go_to_left")]
    nodes = [n for n in model.graph.node if n.op_type.startswith("TreeEnsemble")]
    if len(nodes) != 1 or not trees:
        return
    by = {a.name: a for a in nodes[0].attribute}
    ids = list(zip(by["nodes_treeids"].ints, by["nodes_nodeids"].ints))
    if len(ids) != sum(t.node_count for t in trees) or max(t for t, _ in ids) >= len(trees):
        return
    left = [int(trees[t].missing_go_to_left[n]) for t, n in ids]
    if "nodes_missing_value_tracks_true" in by:
        nodes[0].attribute.remove(by["nodes_missing_value_tracks_true"])
    nodes[0].attribute.append(helper.make_attribute("nodes_missing_value_tracks_true", left))


class Rows:
    """Random rows, and what the model answers."""

    def __init__(self, job, subject, given, low, high, outputs):
        self.job, self.subject, self.given, self.low, self.high = job, subject, given, low, high
        self.vectors = {o.name: o.name == "label" and len(o.type.tensor_type.shape.dim) < 2 for o in outputs}

    def draw(self, rng, rows):
        x = rng.uniform(self.low, self.high, (rows, len(self.low)))
        for n, values in self.subject.categories.items():
            x[:, n] = rng.choice(values, rows)
        return x.astype(common.DTYPES[self.given["datatype"]])

    def answer(self, names, x):
        try:
            found = {n: self.subject.answer(n, x) for n in names}
        except Wrong:
            raise
        except Exception as error:
            raise Wrong(f"the model does not answer random rows of {len(self.low)} numbers ({explain(error)})") from error
        if any(isinstance(a, list) for a in found.values()):
            raise Wrong("the model has several labels for a row, which skl2onnx's form does not hold; serve it with the template python-infer")
        return {n: self.shaped(n, np.asarray(a)) for n, a in found.items() if a is not None}

    def shaped(self, name, array):
        """Labels may be a vector; ONNX's other outputs are tables."""
        return array if self.vectors.get(name) else columns(array)

    def clear(self, names, rows, missing=False):
        """Rows whose two best classes are not as good as equal: rounding would choose there."""
        rng = np.random.default_rng([self.job["seed"], rows, int(missing)])
        x = self.draw(rng, 4 * rows)
        if missing:
            x[rng.random(x.shape) < 0.2] = np.nan
        scores = [a for n, a in self.answer(names, x).items() if "probabilit" in n and a.ndim == 2 and a.shape[1] > 1]
        if scores:
            best = np.sort(scores[0], axis=1)
            order = np.argsort(best[:, -1] - best[:, -2] < 1e-3, kind="stable")
            x = x[order]
        return np.ascontiguousarray(x[:rows])

    def takes_missing(self, names):
        x = self.draw(np.random.default_rng(self.job["seed"]), 4)
        x[0, :] = np.nan
        try:
            self.answer(names, x)
        except Wrong:
            return False
        return True


def compared(array, code):
    """An answer in the type of the ONNX output."""
    return np.ascontiguousarray(array.astype(NAMES[code]))


def same_labels(model, given, name, x, old):
    """String labels: ONNX's own evaluator, for the engine compares numbers."""
    from onnx.reference import ReferenceEvaluator

    x = x[:LABELLED]
    found = [str(v) for v in np.asarray(ReferenceEvaluator(model).run([name], {given["name"]: x})[0]).ravel()]
    if found != [str(v) for v in old[:len(x)].ravel()]:
        raise Wrong(f"the converted model does not answer as the old one: {name!r} is {found} and was {[str(v) for v in old[:len(x)]]}")


def without_labels(job, model, names):
    """The model for the comparison of numbers."""
    import onnx

    part = onnx.ModelProto()
    part.CopyFrom(model)
    kept = [o for o in part.graph.output if o.name in names]
    del part.graph.output[:]
    part.graph.output.extend(kept)
    onnx.save(part, os.path.join(job["work"], "numbers.onnx"))
    return "numbers.onnx"


def convert(job, tell):
    tell.step("loading the model")
    subject = {"pickle": from_pickle, "xgboost": from_xgboost, "lightgbm": from_lightgbm, "catboost": from_catboost}[job["kind"]](job)
    given = table(job, subject.width, doubles=True)
    tell.step("converting to ONNX")
    try:
        model = subject.onnx()
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{subject.packages[-1]} cannot convert it ({explain(error)}); serve it with the template python-infer") from error
    return finished(job, tell, subject, given, model)


def finished(job, tell, subject, given, model):
    import onnx

    drop_zipmap(model)
    mark_missing(model, subject.estimator)
    rows = Rows(job, subject, given, *scaled(subject.estimator, *ranges(model, given, subject.width)), model.graph.output)
    names = [o.name for o in model.graph.output]
    old = rows.answer(names, rows.draw(np.random.default_rng(job["seed"]), 2))
    if not old:
        raise Wrong(f"the converted model has the outputs {', '.join(names)}, and the old one answers none of them")
    types = tidy(model, given, old)
    onnx.save(model, job["out"])
    names = [o.name for o in model.graph.output]
    numbers = [n for n in names if types[n] != 8]
    tell.step("running the model on random rows")
    cases = []
    for count, missing in [(n, False) for n in job["batches"]] + [(max(job["batches"]), True)] * (job["missing"] and rows.takes_missing(names)):
        x = rows.clear(names, count, missing)
        old = rows.answer(names, x)
        for name in set(names) - set(numbers):
            same_labels(model, given, name, x, old[name])
        mark = f"b{count}-{'missing' if missing else 'whole'}"
        cases.append({"rows": count, "missing": missing, "inputs": common.save(job, mark + "-in", [x]),
                      "old": common.save(job, mark + "-old", [compared(old[n], types[n]) for n in numbers]), "new": []})
    if not numbers:
        cases = []
    found = {"inputs": [given], "outputs": names, "compared": numbers, "cases": cases, "notes": subject.notes,
             "opset": next(o.version for o in model.opset_import if o.domain == ""),
             "versions": versions(*subject.packages, "onnx")}
    if numbers and numbers != names:
        found["part"] = without_labels(job, model, numbers)
    return found


if __name__ == "__main__":
    main(convert)
