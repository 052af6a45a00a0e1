"""Whether variance reduction pays: estimators × step rules × mini-batch sizes, on a network and on a convex problem."""
