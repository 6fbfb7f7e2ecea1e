"""GET /metrics: everything that is measured, on one screen. A room that counts gets its lines in `measured`."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request
from starlette.responses import Response

from app import __version__
from app.api.deps import OpenRelay, Operator
from app.api.openapi import sends
from app.bootstrap import Relay
from app.metrics import Metric, Values, counter, gauge, histogram
from app.outbox.totals import Totals, totals
from app.push.provider import Verdict
from app.turns import store as turns

UPSTREAM_STATES = ("up", "down", "auth_required", "off")
FINISHES = ("completed", "stopped", "interrupted", "failed", "uncertain")
ASKED = ("executed", "refused", "denied", "device_offline", "timeout")
WAKES = ("pushed", "failed", "later", "nothing")

router = APIRouter(tags=["operator"])


@router.get(
    "/metrics",
    response_class=Response,
    responses=sends("What is measured", "text/plain", "application/openmetrics-text"),
)
async def metrics(request: Request, relay: OpenRelay, _: Operator) -> Response:
    """For Prometheus, as text or as OpenMetrics."""
    waiting, open_turns = await relay.db.read(lambda tx: (totals(tx), turns.open_by_state(tx)))
    found = [*_stored(relay, waiting, open_turns), *measured(relay)]
    body, content_type = relay.metrics.page(found, request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type})


def _stored(relay: Relay, box: Totals, open_turns: dict[str, int]) -> Iterator[Metric]:
    yield counter("talaria_kept_frames", "Frames kept for devices, each once for each device.", box.kept)
    yield counter("talaria_acknowledged_frames", "Kept frames that their device has confirmed.", box.acked)
    yield gauge("talaria_waiting_frames", "Kept frames that paired devices have not confirmed.", box.waiting)
    yield gauge("talaria_waiting_frames_max", "The most that wait for one device.", box.deepest)
    age = 0.0 if box.oldest is None else max(0.0, relay.clock.now() - box.oldest)
    yield gauge("talaria_oldest_waiting_frame_seconds", "Age of the oldest frame that waits; 0: none.", age)
    yield gauge("talaria_turns_open", "Turns that have not ended.", open_turns, ["state"])


def measured(relay: Relay) -> Iterator[Metric]:
    """What the rooms have counted since the relay started, and how they stand."""
    yield gauge("talaria_info", "This relay.", {__version__: 1}, ["version"])

    gateway = relay.gateway
    yield gauge("talaria_links_open", "Sockets of devices.", len(relay.hub))
    yield gauge("talaria_links_unauthenticated", "Sockets that have not said who they are.", gateway.strangers)
    yield counter("talaria_frames_received", "Messages that came over sockets of devices.", gateway.traffic.received)
    yield counter("talaria_frames_sent", "Frames written to sockets of devices.", gateway.traffic.sent)

    pushes = relay.push.dispatcher.pushes
    every = {(provider, verdict.value): 0 for provider in relay.push.providers for verdict in Verdict}
    wakes = _all(WAKES, relay.push.dispatcher.wakes)
    yield counter(
        "talaria_pushes", "Pushes, by what the provider made of them.", every | pushes, ["provider", "outcome"]
    )
    yield counter("talaria_wakes", "Devices whose push was due, and what came of it.", wakes, ["outcome"])

    yield counter("talaria_turns_ended", "Turns that have ended.", _all(FINISHES, relay.turns.ended), ["finish"])
    yield gauge("talaria_asks_open", "What the agent waits for an answer to.", relay.approvals.waiting(), ["kind"])
    states = {
        (name, state): float(state == now["state"])
        for name, now in relay.upstream().items()
        for state in UPSTREAM_STATES
    }
    yield gauge("talaria_upstream_state", "1 for the state the way to Hermes is in.", states, ["upstream", "state"])
    dropped = relay.notifications.dropped
    yield counter("talaria_notifications_dropped", "Posts that came faster than they are stored.", dropped)

    asked = _all(ASKED, relay.bridge.activity.outcomes)
    yield counter("talaria_bridge_commands", "Commands to phones that have ended, by how.", asked, ["outcome"])
    yield gauge("talaria_terminals_attached", "Views of terminal sessions.", len(list(relay.terminals.attached)))

    db = relay.db
    yield histogram("talaria_database_commit_seconds", "How long a commit took, with its works.", db.commit_seconds)
    yield histogram("talaria_database_batch_works", "Works in one commit.", db.batch_works)
    yield counter("talaria_database_failed_commits", "Commits that failed, with all their works.", db.failed_commits)
    yield gauge("talaria_database_queued_works", "Works that wait for the writer.", db.queued)

    requests = relay.metrics.requests
    yield counter("talaria_http_requests", "Requests answered; 101: a socket.", dict(requests), ["route", "status"])


def _all(names: tuple[str, ...], seen: dict[str, int]) -> Values:
    """A series that is there from the start shows its first event as one."""
    return dict.fromkeys(names, 0) | dict(seen)
