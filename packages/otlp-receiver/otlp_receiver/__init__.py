"""OTLP: log events of OpenTelemetry, read as runtime events, and the protocol's own answers.

The application alone imports it.
"""
