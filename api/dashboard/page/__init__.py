"""What every page stands on: its frame, files, numbers, forms and visitor.

Imports `runtime` and `wire`; the dashboard's pages import it.
"""
