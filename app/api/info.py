"""What hermes-relay's clients ask about the relay, with its names. A part that is not there is not listed."""

from __future__ import annotations

from typing import Any, ClassVar

from fastapi import APIRouter

from app import __version__
from app.api import examples
from app.api.bodies import PeerRoute
from app.api.deps import DeviceOrHostTool, OpenRelay
from app.api.openapi import answers


class InfoRoute(PeerRoute):
    texts: ClassVar[frozenset[int]] = frozenset({401, 403})


ALWAYS = {"media", "profiles"}
WITH_CHANNEL = {"bridge", "notifications", "proactive", "terminal"}  # those of hermes-relay that have one of their name

router = APIRouter(tags=["hermes-relay"], route_class=InfoRoute)


@router.head("/relay/info", include_in_schema=False)
@router.get("/relay/info", responses=answers(examples.INFO))
async def info(relay: OpenRelay, _: DeviceOrHostTool) -> dict[str, Any]:
    """`session_count` and `paired_device_count`: live sessions, and devices that have one."""
    sessions, channels = await relay.sessions.list(), relay.gateway.dispatch.channels
    # The app reads nothing of the answer where a profile has no state.
    profiles = [profile | {"relay_state": "ready"} for profile in relay.hermes.profiles()]
    return {
        "version": __version__, "plugin_version": __version__, "platform": "talaria", "protocol_version": 1,
        "capabilities": sorted(ALWAYS | (WITH_CHANNEL & channels)), "profiles": profiles,
        "uptime_seconds": int(relay.clock.monotonic() - relay.started),
        "session_count": len(sessions), "paired_device_count": len({session.device_id for session in sessions}),
        "pending_commands": relay.bridge.pending, "media_entry_count": await relay.media.count(), "health": "ok",
        "gateway_heartbeat": {"status": relay.agent_link.state()["state"], "supported": True},
        "gateway_prior_exit": {"prior_exit": "unknown"},
    }  # fmt: skip


@router.get("/relay/security", responses=answers(examples.RUNTIME_SECURITY))
async def security(relay: OpenRelay, _: DeviceOrHostTool) -> dict[str, Any]:
    """Talaria never takes a Hermes key over plain HTTP; forwarding headers count from trusted proxies only."""
    return {
        "ok": True, "scope": "runtime", "allow_insecure_api_bearer": False,
        "trust_proxy_headers": bool(relay.settings.server.trusted_proxies),
    }  # fmt: skip


@router.get("/context/injected", responses=answers(examples.INJECTED))
async def injected(_: DeviceOrHostTool) -> dict[str, Any]:
    """Talaria adds nothing to what is said to the agent."""
    return {"enabled": False, "blocks": []}
