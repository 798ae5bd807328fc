#!/usr/bin/env bash
# Claim: The MCP SDK for Python turns the text null in an optional text argument into no argument.
# Tools: mcp 2.3.0, fastmcp 4.2.3 (PyPI)
# Seen: a tool with `commit: str | None` gets None for "null" from mcp and the text from fastmcp; mcp refuses "[1]" as a list.
# Matters: an agent that names a branch, commit or note so asks another question than it typed, with no error.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv official
python3 -m venv other
official/bin/pip install -qq mcp==2.3.0
other/bin/pip install -qq fastmcp==4.2.3
cat > ask.py <<'PY'
import asyncio
import sys

if sys.argv[1] == "mcp":
    from mcp import Client
    from mcp.server import MCPServer as Server
else:
    from fastmcp import Client
    from fastmcp import FastMCP as Server

server = Server("texts")


@server.tool()
def heard(commit: str | None = None, note: str = "") -> str:
    return repr(commit if commit is not None or not note else note)


async def main() -> None:
    async with Client(server) as client:
        for arguments in ({"commit": "null"}, {"note": "null"}, {"commit": "true"}):
            answer = await client.call_tool("heard", arguments)
            print(answer.content[0].text, end=" ")
        extra = {} if sys.argv[1] == "mcp" else {"raise_on_error": False}
        answer = await client.call_tool("heard", {"commit": "[1]"}, **extra)
        print("refused" if answer.is_error else answer.content[0].text)


asyncio.run(main())
PY
first=$(official/bin/python ask.py mcp 2>/dev/null)
second=$(other/bin/python ask.py fastmcp 2>/dev/null)
echo "mcp: $first"
echo "fastmcp: $second"
[ "$first" = "None 'null' 'true' refused" ] && [ "$second" = "'null' 'null' 'true' '[1]'" ]
