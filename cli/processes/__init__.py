"""Processes: the whole service under one supervisor, or one part of it.

`cli.main` loads its commands by name.
"""
