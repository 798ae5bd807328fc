"""Counts: cells, their sums by arm, and how they add up over time.

Imports no other room of `stats`; each of them may import it.
"""
