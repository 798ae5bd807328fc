"""Guardrails: their tests of harm over time, and their levels in both arms.

Imports `counts`, `sequential` and `looks`; gates and decisions may import it.
"""
