"""The set-up checklist, cut to one kilobyte: failed checks first, each with its fix."""

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_server.contract import Checklist
from mcp_server.explanation import LONGEST_BYTES, as_json, cut

LINE_BYTES = 260


def checklist(lines: Sequence[Mapping[str, Any]]) -> Checklist:
    """Returns the failed, the unjudged and the passed checks of a project's set-up.

    Args:
        lines: The body of `GET /v1/reward/checklist`.

    Returns:
        A checklist of at most 1,024 bytes as JSON; `left_out` counts the lines that did not fit.
    """
    red = [_as_text(line) for line in lines if line.get("ok") is False]
    waiting = [str(line.get("check", ""))[:40] for line in lines if line.get("ok") is None]
    green = [str(line.get("check", ""))[:40] for line in lines if line.get("ok") is True]
    fitted = Checklist(red=red, waiting=waiting, green=green, left_out=0)
    parts = (green, waiting, red)
    left_out = 0
    while len(as_json(fitted.model_dump())) > LONGEST_BYTES:
        next(part for part in parts if part).pop()
        left_out += 1
        fitted = Checklist(red=red, waiting=waiting, green=green, left_out=left_out)
    return fitted


def _as_text(line: Mapping[str, Any]) -> str:
    text = f"{line.get('check', '')}: {line.get('seen', '')} {line.get('fix', '')}"
    return cut(text.strip(), LINE_BYTES)
