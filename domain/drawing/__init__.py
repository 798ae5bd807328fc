"""Drawings: the picture of an experiment as SVG.

Imports `domain.wording`; pages and Dagster import it.
"""
