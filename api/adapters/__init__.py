"""Adapters: the protocols of OpenFeature and of controllers of rollouts.

An annex: the application alone imports it.
"""
