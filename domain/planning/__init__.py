"""Planning: how long a canary takes before it begins, in plain floats.

Imports the standard library alone; the command line, tools and pages plan with it.
"""
