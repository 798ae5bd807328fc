"""Processes: the whole service under a supervisor, or a part of it.

`cli.main` loads its commands by name.
"""
