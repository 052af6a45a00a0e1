"""Linear models as scikit-learn estimators: in a pipeline, to a given ‖∇f‖, with other methods of the family beside."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vcsg.linear import LinearClassifier, LinearRegressor

rng = np.random.default_rng(0)
X = (rng.normal(size=(20_000, 30)) + rng.normal(size=(20_000, 1))) * np.linspace(0.1, 10, 30)
margins = (X / np.linspace(0.1, 10, 30)) @ rng.normal(size=30)
y = np.where(margins + rng.logistic(size=len(X)) > 0, "yes", "no")
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# As any estimator of scikit-learn. tol is for ‖∇f‖, which is measured, not guessed from the steps.
model = make_pipeline(StandardScaler(), LinearClassifier(alpha=1e-4, tol=1e-5, random_state=0)).fit(X_train, y_train)
fitted = model[-1]
print(f"accuracy {model.score(X_test, y_test):.3f} after {fitted.n_iter_} passes by {fitted.solver_}")
for epoch in fitted.history_:
    print(" ", epoch)

# Another method of the family on the same compiled loops.
slow = make_pipeline(StandardScaler(), LinearClassifier(alpha=1e-2, method="svrg", tol=1e-2, max_iter=2000))
print(f"svrg took {slow.fit(X_train, y_train)[-1].n_iter_} passes to ‖∇f‖ ≤ 0.01")

# A bounded loss: the outliers lose their influence.
targets = X @ np.linspace(-1, 1, 30) + rng.normal(size=len(X))
targets[:2000] += 1e4
for loss in ("squared", "welsch"):
    robust = make_pipeline(StandardScaler(), LinearRegressor(loss, scale=3.0)).fit(X, targets)
    error = np.abs(robust.predict(X[2000:]) - targets[2000:]).mean()
    print(f"{loss}: mean absolute error {error:.2f} on the rows without outliers")
