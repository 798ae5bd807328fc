"""Looks: analysis blocks, and the counts and test at each point of time.

Imports `counts` and `sequential`; gates and decisions may import it.
"""
