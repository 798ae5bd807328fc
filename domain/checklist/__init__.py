"""The checklist: what tells whether a project is wired right, and the lines that say so.

Imports the standard library and `domain` alone; storage reads the set-up, faces show the lines.
"""
