"""The pipeline's room: the text of SQL from the log to cells, its inputs, and a file an engine.

`orchestration` and `storage`'s own rooms above it may import it; it imports no room above itself.
"""
