"""Evidence: all that a verdict rests on, as the document that is stored, served and described.

Imports the words of its neighbours in `domain`; statistics fill it and every face reads it.
"""
