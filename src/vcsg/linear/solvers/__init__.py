"""The solvers of linear models: the default one with its stages, and every method of the family.

A solver takes a `Problem` and a start and returns a `Solution`. It knows nothing of scikit-learn.
"""
