"""Looks: analysis blocks, and the counts, test and gates at each point of time.

Imports `counts`, `sequential` and `gates`; decisions may import it.
"""
