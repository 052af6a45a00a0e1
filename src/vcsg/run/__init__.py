"""One run of a method: what is decided, what is drawn, and the executor that calls a closure.

`course` makes every decision and owns all discrete state, and knows no tensors; `state`, `record`, `watch`, `sampling`
and `variance` are its parts, and `planning`, `stepping`, `judging`, `smoothness`, `handing_over`, `reservoir` and
`faults` the functions that it asks, one topic each. `point` holds the tensors, `closures` does the work of a step and
reports it to the course, `ranks` exchanges with other processes. A room for methods that are given as data: it imports
`method` and nothing else of the library.
"""
