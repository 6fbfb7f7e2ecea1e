"""Messages of Hermes' gateway: what the agent link tells, what devices say to it, threads, history and unread."""
