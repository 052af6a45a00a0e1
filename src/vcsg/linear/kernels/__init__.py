"""The compiled loops of linear models: vectors of eight numbers, rows, losses, passes over rows and inner steps.

They know arrays and numbers alone: no problem, no method, no option of an estimator.
"""
