"""The application as the service runs it: the API, and behind `/mcp` the tools of MCP."""

from fastapi import FastAPI
from starlette.types import ASGIApp

from api.app import create_app
from api.runtime.agents import ToolServer


def application() -> FastAPI:
    """Returns the application that the environment describes."""
    return create_app(tools=tools_of)


def tools_of(asked: ASGIApp) -> ToolServer:
    """Returns the tools of MCP in front of an application."""
    # The SDK takes a second and 30 MB, in each worker: a service without agents does without.
    from mcp_server.http import HttpServer  # noqa: PLC0415

    return HttpServer(asked)
