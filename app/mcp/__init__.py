"""The phone as tools for the agent, at `/mcp`."""
