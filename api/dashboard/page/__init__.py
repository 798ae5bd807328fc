"""Parts that every page uses: frame, files, numbers, forms and the visitor.

Imports `runtime` and `wire`; the dashboard's pages import it.
"""
