"""Traffic: batches of events that commands send to a running service.

The package `canary_traffic` simulates it.
"""
