"""The other half of the stand-in: the dashboard of Hermes, over whose WebSocket turns can ask and think aloud."""
