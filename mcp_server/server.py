"""The MCP server `service-reward`: the tools over stdio."""

import gc
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

from mcp_server.address import Address
from mcp_server.release import release
from mcp_server.reward_api import RewardApi
from mcp_server.tools import tools

NAME = "service-reward"
INSTRUCTIONS = (
    "Measures a deployed change by a randomized canary and says keep, rollback, iterate or "
    "abstain. Call register_experiment after a deploy, then get_verdict until power_state.decided "
    "is true. keep: ship. rollback: revert. iterate: revise using guardrail_breaches. "
    "abstain: log abstain_reason. No tool records a deploy: the job that deploys does, by "
    "`deploy-reward deploy` or POST /v1/deploys with the write key."
)


class RewardServer(MCPServer[RewardApi]):
    """The MCP server with errors that a model can act on; it refuses unknown arguments."""

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, object],
        context: Context[RewardApi, Any] | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool by name."""
        schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
        if name not in schemas:
            raise ToolError(f"Unknown tool: {name[:128]}. The tools are: {', '.join(schemas)}.")
        known, required = schemas[name]["properties"], schemas[name].get("required", ())
        unknown = sorted(set(arguments) - set(known))
        if unknown:
            accepted = ", ".join(known) or "none"
            raise ToolError(f"Unknown arguments: {', '.join(unknown)}. {name} takes: {accepted}.")
        # Models write null for an argument that they leave out.
        given = {
            argument: value
            for argument, value in arguments.items()
            if value is not None or argument in required
        }
        try:
            return await super().call_tool(name, given, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(_corrections(error.__cause__, known)) from None
            if isinstance(error.__cause__, ToolError):
                raise error.__cause__ from None
            raise


def reward_server(api: RewardApi) -> RewardServer:
    """The server over a project's reward endpoints; it opens and closes `api` itself."""

    @asynccontextmanager
    async def opened(_: MCPServer[RewardApi]) -> AsyncGenerator[RewardApi]:
        async with api:
            yield api

    return RewardServer(
        NAME,
        instructions=INSTRUCTIONS,
        version=release(),
        tools=tools(),
        lifespan=opened,
        middleware=[_tools_alone],
        # At INFO the SDK and httpx2 write a line for each call and request.
        log_level="WARNING",
    )


async def _tools_alone(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Advertises the tools alone: the SDK advertises prompts, resources and list changes too."""
    result = await call_next(ctx)
    if isinstance(result, dict) and "capabilities" in result:
        return {**result, "capabilities": {"tools": {}}}
    return result


def run() -> None:
    """Serve over stdio until stdin closes.

    Raises:
        SystemExit: With code 2, after a line on stderr, if the environment is not usable.
    """
    try:
        address = Address.from_environment(os.environ)
    except ValueError as error:
        sys.stderr.write(f"{NAME}: {error}\n")
        raise SystemExit(2) from None
    reward_server(RewardApi(address)).run("stdio")
    # The interpreter would look through all that was imported for cycles, twice, before it ends:
    # a sixth of a second of work, seconds on a machine that is busy, and a client waits for two.
    gc.freeze()


def _corrections(error: ValidationError, members: Mapping[str, Any]) -> str:
    """Returns the corrections, a line an argument; never the value, which may be private."""
    reasons: dict[str, list[str]] = {}
    for fault in error.errors(include_input=False, include_url=False, include_context=False):
        argument = str(fault["loc"][0]) if fault["loc"] else "arguments"
        rule = re.sub(r"^\w+ should ", "must ", fault["msg"])
        if fault["type"].endswith("_type") or len(fault["loc"]) > 1:
            rule = f"must be {_form(members.get(argument, {}))}"
        reasons.setdefault(argument, []).append(rule)
    lines = [
        f"{argument}: {'; '.join(dict.fromkeys(rules))}" for argument, rules in reasons.items()
    ]
    return "\n".join(["Correct the arguments and call again.", *lines])


def _form(schema: Mapping[str, Any]) -> str:
    """Returns the values that a schema takes, in words."""
    kind = schema.get("type", "value")
    if "anyOf" in schema:
        forms = [_form(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(forms))
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if kind == "array":
        return f"an array, each item {_form(schema.get('items', {}))}"
    if kind == "object" and "properties" in schema:
        members = [f"{name} ({_form(each)})" for name, each in schema["properties"].items()]
        return f"an object of {', '.join(members)}"
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"
