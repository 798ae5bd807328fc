"""The sequential test: mixture, confidence sequence, and the sessions that an answer needs.

Imports `counts` alone; gates, looks and decisions may import it.
"""
