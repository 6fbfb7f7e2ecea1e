"""The agent behind the relay, and the only place that knows Hermes' HTTP: routes, capabilities, leases, streams."""
