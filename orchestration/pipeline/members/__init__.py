"""Members: parts of an evidence document, a file each.

Imports `stats` and `storage`; the document and its neighbours import it.
"""
