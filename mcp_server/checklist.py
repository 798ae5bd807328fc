"""The set-up checklist, cut to one kilobyte: what is wrong first, with its fix."""

from collections.abc import Mapping
from typing import Any

from mcp_server.contract import Checklist
from mcp_server.explanation import LONGEST_BYTES, as_json, cut

LINE_BYTES = 260


def checklist(lines: list[Mapping[str, Any]]) -> Checklist:
    """What is wired wrong, what cannot be judged yet, and what is right.

    Args:
        lines: The body of `GET /v1/reward/checklist`.

    Returns:
        A checklist of at most 1,024 bytes as JSON; `left_out` counts the lines that did not fit.
    """
    red = [_told(line) for line in lines if line.get("ok") is False]
    waiting = [str(line.get("check", ""))[:40] for line in lines if line.get("ok") is None]
    green = [str(line.get("check", ""))[:40] for line in lines if line.get("ok") is True]
    found = Checklist(red=red, waiting=waiting, green=green, left_out=0)
    parts = (green, waiting, red)
    left_out = 0
    while len(as_json(found.model_dump())) > LONGEST_BYTES:
        next(part for part in parts if part).pop()
        left_out += 1
        found = Checklist(red=red, waiting=waiting, green=green, left_out=left_out)
    return found


def _told(line: Mapping[str, Any]) -> str:
    told = f"{line.get('check', '')}: {line.get('seen', '')} {line.get('fix', '')}"
    return cut(told.strip(), LINE_BYTES)
