"""Markup: pages rendered from templates, with every posted value escaped."""

from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from api.dashboard.page import figures
from api.dashboard.page.assets import VERSION, asset_path
from domain.wording.looks import e_value_text

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
# Jinja types what it brings itself alone.
cast("dict[str, Any]", _TEMPLATES.globals).update(asset=asset_path, version=VERSION)
cast("dict[str, Any]", _TEMPLATES.filters).update(
    count=figures.count,
    day=figures.day_text,
    e_value=e_value_text,
    money=figures.money,
    percent=figures.percent,
    query=figures.query_of,
    signs=figures.signs,
    short=figures.short_commit,
    time=figures.time_text,
    timed=figures.timed,
    stamp=figures.stamp,
    title_of=figures.first_line,
    web=figures.web_address,
)


def markup(template: str, **known: Any) -> str:  # noqa: ANN401 - a template takes whatever it names
    """Returns a part of a page."""
    return _TEMPLATES.get_template(template).render(**known)


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    **known: Any,  # noqa: ANN401 - a template takes whatever it names
) -> Response:
    """Returns a whole page, for the signed-in person."""
    visitor = getattr(request.state, "visitor", None)
    text = markup(template, visitor=visitor, path=request.scope["path"], **known)
    return HTMLResponse(text, status_code=status)
