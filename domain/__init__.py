"""Pure values that every room shares; imports the standard library and msgspec alone.

Any room may import it.
"""
