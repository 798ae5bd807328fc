"""Looks: analysis blocks, and what counts, test and gates say at each point of time.

Imports `counts`, `sequential` and `gates`; decisions may import it.
"""
