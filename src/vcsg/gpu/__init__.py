"""The executor by CUDA graphs, for data on a GPU: graphs, Triton kernels, and the steps made of them.

It drives the course of a run as `vcsg.run.closures` does, many steps at a time, and refuses with the reason what it
cannot do. It imports `method` and `run`.
"""
