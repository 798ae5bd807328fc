"""The reward endpoints as MCP tools over stdio."""
