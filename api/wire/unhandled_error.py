"""A breakdown: what no word is known for, told to the log without the values that it may quote."""

import logging
import traceback

from starlette.requests import Request

from api.wire.problem import Problem

_log = logging.getLogger("api")


def breakdown(request: Request, error: BaseException) -> Problem:
    """Logs what broke while a request was answered, and returns what its sender is told."""
    _log.error("request %s failed: %s", request.state.request_id, _without_values(error))
    return Problem("internal_error", "a fault of the service; it is logged")


def _without_values(error: BaseException) -> str:
    """Returns where an error arose and of what kind it is; its message may quote the input."""
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames[::-1])
    return f"{type(error).__name__} in {where}"
