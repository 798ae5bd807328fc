"""`simulate repository`: a team that ships many changes a day, in simulated time.

It drives a service of its own over HTTP: a store with a clock that it moves, the API, and the
pipeline's steps. Only `cli.simulate` may import it.
"""
