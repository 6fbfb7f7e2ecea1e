"""The agent link: the socket that Talaria's plugin inside Hermes' messaging gateway dials."""
