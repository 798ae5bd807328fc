"""Adapters: the protocols of OpenFeature, of OpenTelemetry and of controllers of rollouts.

An annex: the application alone imports it.
"""
