"""Makes model/1/weights.npz, the example: pip install scikit-learn."""
import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

lengths, kinds = load_iris(return_X_y=True)
trained = LogisticRegression(max_iter=1000).fit(lengths, kinds)
np.savez("model/1/weights.npz", weights=trained.coef_.T.astype("float32"), bias=trained.intercept_.astype("float32"))
