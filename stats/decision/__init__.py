"""The decision: from the looks at an experiment to its verdict and evidence.

The top of `stats`: orchestration and the command line import it.
"""
