"""Experiments: deploys, code graphs, and the changes that are measured.

Imports `tenants` and below; the log, the pipeline and all above may import it.
"""
