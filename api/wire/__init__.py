"""The wire: how requests are read and answers and problems are written.

Imports no other room of `api`; each of them may import it.
"""
