"""Writes small models of scikit-learn, XGBoost, LightGBM and CatBoost into a directory, each
with rows and what its own library answers to them: NAME.x.npy, NAME.OUTPUT.npy."""
import os
import pickle
import sys

import catboost
import joblib
import lightgbm
import numpy as np
import sklearn.base
import xgboost
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier, RandomForestRegressor, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, SVC

out = sys.argv[1]
X, y = make_classification(400, 7, n_informative=5, n_classes=3, random_state=1)
X = (X * [1, 2, 5, 100, 0.01, 1, 1] + [0, 3, 0, 500, 0, 0, -7]).astype("float32")
binary = (y > 0).astype("int64")
value = make_regression(400, 7, random_state=2)[1] / 50
words = np.array(["cat", "dog", "zebra"])[y]
holes = X.copy()
holes[np.random.default_rng(3).random(X.shape) < 0.1] = np.nan
rows = X[:40]


def expect(name, x, **outputs):
    np.save(os.path.join(out, name + ".x.npy"), np.ascontiguousarray(x))
    for key, array in outputs.items():
        array = np.asarray(array)
        np.save(os.path.join(out, f"{name}.{key}.npy"), np.ascontiguousarray(array.astype("int64" if key == "label" else "float32")))


def path(name):
    return os.path.join(out, name)


def classifier(name, model, x, labels=None):
    joblib.dump(model, path(name), compress=3 if name.endswith("z") else 0)
    expect(name, x, label=model.predict(x) if labels is None else labels(model, x), probabilities=model.predict_proba(x))


classifier("logistic.pkl", LogisticRegression(max_iter=5000).fit(X, y), rows)
classifier("forest.joblib", RandomForestClassifier(15, random_state=1).fit(X, y), rows)
classifier("forest.joblib.z", RandomForestClassifier(15, random_state=1).fit(X, binary), rows)
classifier("boosting.pkl", HistGradientBoostingClassifier(max_iter=8).fit(holes, y), holes[:40])
classifier("pipeline.pkl", make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(holes, y), holes[:40])
classifier("xgbpipeline.pkl", make_pipeline(StandardScaler(), xgboost.XGBClassifier(n_estimators=6)).fit(X, y), rows)
classifier("lgbm.pkl", lightgbm.LGBMClassifier(n_estimators=6, verbose=-1).fit(X, y), rows)
words_model = make_pipeline(StandardScaler(), RandomForestClassifier(9, random_state=1)).fit(X, words)
joblib.dump(words_model, path("words.pkl"))
expect("words.pkl", rows, probabilities=words_model.predict_proba(rows))
joblib.dump(make_pipeline(StandardScaler(), LinearSVC()).fit(X, y), path("linearsvc.pkl"))
joblib.dump(SVC().fit(StandardScaler().fit_transform(X), y), path("svc.pkl"))
joblib.dump(VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft").fit(X, y), path("voting.pkl"))
joblib.dump(RandomForestClassifier(3).fit(X, np.column_stack([y, binary])), path("several.pkl"))
for name, model, target in (("linear.pkl", LinearRegression(), value), ("regressor.pkl", RandomForestRegressor(8, random_state=1), value)):
    joblib.dump(model.fit(X, target), path(name))
    expect(name, rows, variable=model.predict(rows).reshape(-1, 1))
scaler = StandardScaler().fit(X)
joblib.dump(scaler, path("scaler.pkl"))
expect("scaler.pkl", rows, variable=scaler.transform(rows))
means = KMeans(3, random_state=1, n_init=2).fit(X)
joblib.dump(means, path("kmeans.pkl"))
expect("kmeans.pkl", rows, label=means.predict(rows))
isolation = IsolationForest(n_estimators=5, random_state=1).fit(X)
joblib.dump(isolation, path("isolation.pkl"))
sklearn.base.__version__ = "1.5.2"  # As if that had written it.
joblib.dump(LogisticRegression(max_iter=5000).fit(X, y), path("older.pkl"))
sklearn.base.__version__ = sklearn.__version__
with open(path("dict.pkl"), "wb") as file:
    pickle.dump({"weights": [1, 2]}, file)
with open(path("lost.pkl"), "wb") as file:  # Of a module that nobody has.
    file.write(b"\x80\x04\x8c\x0babsent_mod1\x8c\x05Model\x93)\x81.")

for name, target, more in (("xgb3.json", y, {}), ("xgb2.ubj", binary, {"early": True})):
    model = xgboost.XGBClassifier(n_estimators=12, early_stopping_rounds=2 if more else None, learning_rate=0.8)
    model.fit(holes[:300], target[:300], eval_set=[(holes[300:], target[300:])] if more else None, verbose=False)
    model.save_model(path(name))
    expect(name, holes[:40], label=model.predict(holes[:40]), probabilities=model.predict_proba(holes[:40]))
for name, objective in (("xgbr.json", "reg:squarederror"), ("xgbp.ubj", "count:poisson")):
    model = xgboost.XGBRegressor(n_estimators=12, objective=objective).fit(X, np.abs(value) if "poisson" in objective else value)
    model.save_model(path(name))
    expect(name, rows, variable=model.predict(rows).reshape(-1, 1))

for name, target, data in (("lgb3.txt", y, holes), ("lgb2.txt", binary, X)):
    model = lightgbm.LGBMClassifier(n_estimators=12, verbose=-1).fit(data, target)
    model.booster_.save_model(path(name))
    expect(name, data[:40], label=model.predict(data[:40]), probabilities=model.predict_proba(data[:40]))
model = lightgbm.LGBMRegressor(n_estimators=12, verbose=-1).fit(holes, value)
model.booster_.save_model(path("lgbr.txt"))
expect("lgbr.txt", holes[:40], variable=model.predict(holes[:40]).reshape(-1, 1))

kinds = np.column_stack([y, X[:, 1:]]).astype("float32")
model = lightgbm.LGBMClassifier(n_estimators=6, verbose=-1).fit(kinds, binary, categorical_feature=[0])
model.booster_.save_model(path("lgbc.txt"))
expect("lgbc.txt", kinds[:40], label=model.predict(kinds[:40]), probabilities=model.predict_proba(kinds[:40]))
model = xgboost.XGBRanker(n_estimators=6).fit(X, y, qid=np.arange(400) // 20)
model.save_model(path("xgbrank.json"))
expect("xgbrank.json", rows, variable=model.predict(rows).reshape(-1, 1))
xgboost.XGBClassifier(n_estimators=3, booster="dart").fit(X, y).save_model(path("dart.json"))

quiet = {"iterations": 12, "verbose": 0, "allow_writing_files": False}
for name, target, data in (("cat3.cbm", y, holes), ("cat2.cbm", binary, X)):
    model = catboost.CatBoostClassifier(**quiet).fit(data, target)
    model.save_model(path(name))
    expect(name, data[:40], label=model.predict(data[:40]).ravel(), probabilities=model.predict_proba(data[:40]))
model = catboost.CatBoostRegressor(**quiet).fit(holes, value)
model.save_model(path("catr.json"), format="json")
counts = catboost.CatBoostRegressor(loss_function="Poisson", **quiet).fit(X, np.abs(value))
counts.save_model(path("catp.cbm"))
expect("catp.cbm", rows, predictions=counts.predict(rows).reshape(-1, 1))
expect("catr.json", holes[:40], predictions=model.predict(holes[:40]).reshape(-1, 1))
model = catboost.CatBoostClassifier(**quiet, cat_features=[0]).fit([[int(b), *map(float, r)] for b, r in zip(binary, X)], y)
model.save_model(path("categories.cbm"))
