"""Planning: how long a canary takes before it begins, in plain floats.

Imports the standard library and `domain` alone; the command line, tools and pages plan with it.
"""
