"""Programs that pages and builds load: the SDK of browsers, and the parsers of route graphs.

An annex: the application alone imports it.
"""
