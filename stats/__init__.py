"""Sequential statistics as pure functions on counts."""
