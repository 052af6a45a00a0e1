"""One run of a method: what is decided, what is drawn, and the executor that calls a closure.

`course` makes every decision and owns all discrete state, and knows no tensors; `state`, `record`, `watch`, `sampling`,
`variance` and `smoothness` are its parts. `point` holds the tensors, `closures` does the work of a step and reports it
to the course, `ranks` exchanges with other processes. A room for methods that are given as data: it imports `method`
and nothing else of the library.
"""
