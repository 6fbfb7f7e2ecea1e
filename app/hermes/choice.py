"""How a turn is run, by what Hermes advertises and what the owner wants. Pure."""

from __future__ import annotations

from app.hermes.calls import DEFAULT_PROFILE
from app.hermes.capabilities import Capabilities
from app.hermes.errors import UpstreamUnsupported
from app.hermes.upstream import Order


def suits_dashboard(order: Order) -> bool:
    """The dashboard takes pictures only as files of its own host, and runs a profile it does not know as its own."""
    return isinstance(order.message, str) and order.profile in (None, DEFAULT_PROFILE)


def offers_runs(capabilities: Capabilities) -> bool:
    """With the rows of a session, which a run must be told, and with what says how it goes and ends."""
    needed = ("run_submission", "run_status", "run_events_sse", "session_resources")
    return all(capabilities.allows(feature) for feature in needed)


def offers_completions(capabilities: Capabilities) -> bool:
    """With the header that continues a conversation."""
    return capabilities.allows("chat_completions_streaming") and capabilities.allows("session_continuity_header")


def over_api(capabilities: Capabilities, *, ask_approvals: bool) -> str:
    """Kind of upstream on the API server. Raises UpstreamUnsupported."""
    if ask_approvals and offers_runs(capabilities) and capabilities.allows("run_approval_response"):
        return "runs"
    if capabilities.allows("session_chat_streaming"):
        return "session_stream"
    if offers_runs(capabilities):
        return "runs"
    if offers_completions(capabilities):
        return "completions"
    raise UpstreamUnsupported("this Hermes advertises no way to run a turn: 0.19 or newer is needed")
