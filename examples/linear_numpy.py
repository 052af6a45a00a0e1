"""A linear model on NumPy arrays: logistic regression to high accuracy, where variance reduction can pay.

The gradient is written in closed form: the closure sets `w.grad` itself and needs no autograd. Rows have unit length,
so L = ¼ + μ is known and nothing is estimated. SGD with a constant step stalls at its noise; SPIDER and SAGA, with
steps of that length, go on to the limit of float64. The problem was chosen to show this. Where a modest accuracy will
do, SGD is as good.
"""

import numpy as np
import torch

import vcsg

MU = 1e-3
PASSES = 25

rng = np.random.default_rng(0)
A = rng.standard_normal((2000, 20)) / np.sqrt(np.arange(1, 21))
A /= np.linalg.norm(A, axis=1, keepdims=True)
y = np.where(rng.random(2000) < 1 / (1 + np.exp(-3 * A @ rng.standard_normal(20))), 1.0, -1.0)
L = 1 / 4 + MU


def value_and_gradient(w, rows, labels):
    """The mean of log(1 + exp(−y a·w)) + (μ/2)‖w‖² over the given rows, and its gradient."""
    margins = labels * (rows @ w)
    loss = -torch.nn.functional.logsigmoid(margins).mean() + MU / 2 * w @ w
    return loss, rows.T @ (-labels * torch.sigmoid(-margins)) / len(rows) + MU * w


rows, labels = torch.from_numpy(A), torch.from_numpy(y)  # views of the arrays: nothing is copied
start = value_and_gradient(torch.zeros(20, dtype=torch.float64), rows, labels)[1]
print(f"n = {len(A)}, d = {A.shape[1]}, L = {L:.3g}; at the start ‖∇f‖² = {start @ start:.1e}")
methods = [vcsg.make("gd"), *(vcsg.make(name, b=8) for name in ("sgd", "batching-svrg", "spider", "saga"))]
for method in methods:
    w = torch.nn.Parameter(torch.zeros(20, dtype=torch.float64))
    optimizer = vcsg.FiniteSumOptimizer([w], len(A), method, L=L)
    for a, b in optimizer.batches((rows, labels), passes=PASSES):

        def closure():
            with torch.no_grad():
                loss, w.grad = value_and_gradient(w, a, b)
            return loss

        optimizer.step(closure)
    optimizer.load_output()
    weights = w.detach().numpy()
    gradient = value_and_gradient(w.detach(), rows, labels)[1]
    wrong = np.mean(A @ weights * y < 0)
    print(f"{method.name:<13} {optimizer.passes:5.1f} passes  ‖∇f‖² = {gradient @ gradient:.1e}  wrong {wrong:.1%}")
