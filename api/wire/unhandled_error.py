"""Logs an unhandled exception without its values, and answers 500."""

import logging
import traceback

from starlette.requests import Request

from api.wire.problem import Problem

_log = logging.getLogger("api")


def unhandled_error(request: Request, error: BaseException) -> Problem:
    """Logs an unhandled exception of a request, and returns the response to its sender."""
    _log.error("request %s failed: %s", request.state.request_id, _without_values(error))
    return Problem("internal_error", "a fault of the service; it is logged")


def _without_values(error: BaseException) -> str:
    """Returns where an error arose and of what kind it is; its message may quote the input."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames[::-1])
    return f"{type(error).__name__} in {where}"
