"""The endpoints: a file a family.

Imports `runtime` and `wire`; the application puts them together.
"""
