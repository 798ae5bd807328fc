"""The engine of the minute's increment, PostgreSQL, and the methods of an engine of whole days.

They import the text and nothing else of the pipeline, which opens and feeds them.
"""
