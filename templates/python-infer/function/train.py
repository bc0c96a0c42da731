"""Makes model.joblib, the example: pip install -r requirements.txt."""
import joblib
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

lengths, kinds = load_iris(return_X_y=True)
joblib.dump(LogisticRegression(max_iter=1000).fit(lengths, kinds), "model.joblib")
