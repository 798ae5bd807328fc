"""Logs an unhandled exception without its values, and answers 500."""

import logging
import traceback

from starlette.requests import Request

from api.wire.problem import Problem

_log = logging.getLogger("api")


def unhandled_error(request: Request, error: BaseException) -> Problem:
    """Logs an unhandled exception of a request, and returns the response to its sender."""
    # The place and the kind of the error alone: its message may quote the input.
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames[::-1])
    kind = type(error).__name__
    _log.error("request %s failed: %s in %s", request.state.request_id, kind, where)
    return Problem("internal_error", "a fault of the service; it is logged")
