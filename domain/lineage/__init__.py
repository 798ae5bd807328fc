"""Lineage: which changes a build carries, which arm and stratum that makes, and its base.

Imports the standard library alone; every room may import it.
"""
