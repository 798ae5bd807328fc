#!/usr/bin/env bash
# Claim: A tool of MCP's Python SDK that returns nan breaks the schema that the SDK publishes for it, and clients refuse the whole answer.
# Tools: mcp 2.3.0 (PyPI), @modelcontextprotocol/sdk 1.32.2 (npm)
# Seen: of a tool that returns dict[str, float] the schema says number and the answer null; both SDKs' clients raise an error instead of the answer.
# Matters: an agent gets nothing of a result of which one number is not known yet, such as a p-value without conversions.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv env
env/bin/pip install -qq mcp==2.3.0
npm install --silent --no-save @modelcontextprotocol/sdk@1.32.2 >/dev/null
cat > server.py <<'PY'
from mcp.server import MCPServer

server = MCPServer("numbers")


@server.tool()
def p_values() -> dict[str, float]:
    return {"orders": 0.01, "refunds": float("nan")}


if __name__ == "__main__":
    server.run()
PY
cat > client.py <<'PY'
import asyncio

from mcp import Client
from server import server


async def main():
    async with Client(server) as client:
        try:
            print((await client.call_tool("p_values", {})).structured_content)
        except RuntimeError as error:
            print(str(error).split(":")[1].strip().splitlines()[0])


asyncio.run(main())
PY
cat > client.mjs <<'JS'
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
const client = new Client({ name: "asker", version: "1" });
await client.connect(new StdioClientTransport({ command: "env/bin/python", args: ["server.py"] }));
await client.listTools();
const answer = await client.callTool({ name: "p_values", arguments: {} }).catch((error) => error);
console.log(answer instanceof Error ? answer.message.split("schema: ")[1] : answer.structuredContent);
await client.close();
JS
first=$(env/bin/python client.py 2>/dev/null)
second=$(node client.mjs 2>/dev/null)
echo "Python: $first; TypeScript: $second"
[ "$first" = "None is not of type 'number'" ] && [ "$second" = "data/refunds must be number" ]
