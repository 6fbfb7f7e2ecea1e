"""Where devices can be reached, what they want, and what came of every push."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson
from pydantic import ValidationError
from sqlalchemy import text

from app.db import Tx
from app.push.notice import Notice
from app.push.provider import Outcome, Target, Verdict
from app.push.rules import Preferences

log = logging.getLogger("talaria.push")

MAX_TARGETS = 8  # of one device: browsers and reinstalled apps leave old ones behind
MAX_OUTCOMES = 100  # of one device
STALE_S = 90 * 86400.0  # a client registers at each connect; one that did not for so long is gone

# A device whose session has ended may still show what it is pushed, so it is pushed nothing.
_ACTIVE = text(
    "SELECT target_id, device_id, provider, endpoint, keys, settled, not_before FROM push_targets t "
    "WHERE device_id = :device AND retired_at IS NULL AND seen_at > :stale AND EXISTS "
    "(SELECT 1 FROM sessions s WHERE s.device_id = t.device_id AND s.revoked_at IS NULL "
    "AND (s.expires_at IS NULL OR s.expires_at > :now)) ORDER BY created_at"
)
_MAY_READ = text(
    "SELECT 1 FROM sessions WHERE device_id = :device AND revoked_at IS NULL "
    "AND (expires_at IS NULL OR expires_at > :now) AND json_type(grants, '$.chat') IS NOT NULL "
    "AND COALESCE(json_extract(grants, '$.chat') > :now, 1) LIMIT 1"
)
_KNOWN = text(
    "SELECT target_id, retired_at IS NULL FROM push_targets WHERE device_id = :device AND provider = :provider "
    "AND endpoint = :endpoint"
)
_TOPIC = text(
    "SELECT endpoint FROM push_targets WHERE device_id = :device AND provider = :provider AND retired_at IS NULL"
)
_ADD = text(
    "INSERT INTO push_targets (target_id, device_id, provider, endpoint, keys, created_at, seen_at, settled) "
    "VALUES (:target, :device, :provider, :endpoint, :keys, :now, :now, 0)"
)
_REFRESH = text(
    "UPDATE push_targets SET keys = :keys, seen_at = :now, retired_at = NULL, retired = NULL, "
    "not_before = CASE WHEN retired_at IS NULL THEN not_before END, "
    "failure = CASE WHEN retired_at IS NULL THEN failure END WHERE target_id = :target"
)
_ELSEWHERE = text(
    "UPDATE push_targets SET retired_at = :now, retired = 'moved' WHERE endpoint = :endpoint AND provider = :provider "
    "AND device_id <> :device AND retired_at IS NULL"
)
_SURPLUS = text(
    "UPDATE push_targets SET retired_at = :now, retired = 'replaced' WHERE target_id IN (SELECT target_id "
    "FROM push_targets WHERE device_id = :device AND retired_at IS NULL AND target_id <> :target "
    "ORDER BY seen_at DESC LIMIT -1 OFFSET :others)"
)
_FORGET = text("DELETE FROM push_targets WHERE device_id = :device AND (:target IS NULL OR target_id = :target)")
_FORGET_OLD = text(
    "DELETE FROM push_targets WHERE device_id = :device AND retired_at IS NOT NULL AND target_id NOT IN (SELECT "
    "target_id FROM push_targets WHERE device_id = :device AND retired_at >= :before "
    "ORDER BY retired_at DESC LIMIT :most)"
)
_STALE = text(
    "UPDATE push_targets SET retired_at = :now, retired = 'stale' WHERE device_id = :device AND retired_at IS NULL "
    "AND seen_at <= :stale"
)
_FORGIVE = text(
    "UPDATE push_targets SET not_before = NULL WHERE failure NOT IN ('rate_limited', 'service_failed') "
    "AND not_before IS NOT NULL"
)
_SENT = text(
    "UPDATE push_targets SET ok_at = :now, failure = NULL, not_before = NULL, settled = MAX(settled, :head) "
    "WHERE target_id = :target"
)
_FAILED = text(
    "UPDATE push_targets SET failed_at = :now, failure = :code, not_before = :not_before, "
    "settled = CASE WHEN :settled <> 0 THEN MAX(settled, :head) ELSE settled END, "
    "retired_at = CASE WHEN :retire <> 0 THEN :now END, retired = CASE WHEN :retire <> 0 THEN :code END "
    "WHERE target_id = :target"
)
_OUTCOME = text(
    "INSERT INTO push_outcomes (device_id, target_id, provider, at, ms, kind, collapse, head, verdict, code, status, "
    "detail) VALUES (:device, :target, :provider, :now, :ms, :kind, :collapse, :head, :verdict, :code, :status, "
    ":detail)"
)
_TRIM = text(
    "DELETE FROM push_outcomes WHERE device_id = :device AND id <= (SELECT id FROM push_outcomes "
    "WHERE device_id = :device ORDER BY id DESC LIMIT 1 OFFSET :most)"
)
_OUTCOMES = text(
    "SELECT at, provider, target_id, kind, collapse, head, verdict, code, status, detail, ms FROM push_outcomes "
    "WHERE device_id = :device ORDER BY id DESC LIMIT :limit"
)
_LOOK = text(
    "SELECT t.target_id, t.provider, t.created_at, t.seen_at, t.ok_at, t.failed_at, t.failure, t.retired_at, "
    "t.retired FROM push_targets t WHERE t.device_id = :device ORDER BY t.created_at"
)
_PREFS = text("SELECT prefs FROM push_prefs WHERE device_id = :device")
_SET_PREFS = text(
    "INSERT INTO push_prefs (device_id, prefs) VALUES (:device, :prefs) "
    "ON CONFLICT (device_id) DO UPDATE SET prefs = excluded.prefs"
)
_BODY = text("SELECT body FROM payloads WHERE payload_id = :id")
_DEVICE = text("SELECT name FROM devices WHERE device_id = :device")


@dataclass(frozen=True, slots=True)
class Status:
    """A target as its device and the operator see it. `failure` is None once a push was taken again."""

    target_id: str
    provider: str
    created_at: float
    seen_at: float
    ok_at: float | None
    failed_at: float | None
    failure: str | None
    retired_at: float | None
    retired: str | None


# targets


def active(tx: Tx, device_id: str, now: float) -> list[Target]:
    """Those that may be pushed to: none for a device without a living session."""
    rows = tx.all(_ACTIVE, {"device": device_id, "now": now, "stale": now - STALE_S})
    return [
        Target(target_id, device, provider, endpoint, orjson.loads(keys), settled, not_before)
        for target_id, device, provider, endpoint, keys, settled, not_before in rows
    ]


def may_read(tx: Tx, device_id: str, now: float) -> bool:
    """Whether a session of the device has the grant that everything kept is read with."""
    return tx.one(_MAY_READ, {"device": device_id, "now": now}) is not None


def endpoint_of(tx: Tx, device_id: str, provider: str) -> str | None:
    row = tx.one(_TOPIC, {"device": device_id, "provider": provider})
    return None if row is None else row[0]


def register(
    tx: Tx, target_id: str, device_id: str, provider: str, endpoint: str, keys: Mapping[str, str], now: float
) -> tuple[str, bool]:
    """(its id, whether the device could not be reached there before). One endpoint belongs to one device."""
    place = {"device": device_id, "provider": provider, "endpoint": endpoint}
    encoded = orjson.dumps(dict(keys)).decode()
    row = tx.one(_KNOWN, place)
    target_id, is_used = row or (target_id, False)
    tx.execute(_REFRESH if row else _ADD, place | {"target": target_id, "keys": encoded, "now": now})
    if not is_used:
        tx.execute(_ELSEWHERE, place | {"now": now})
        tx.execute(_SURPLUS, {"device": device_id, "target": target_id, "now": now, "others": MAX_TARGETS - 1})
        tx.execute(_FORGET_OLD, {"device": device_id, "before": now - STALE_S, "most": MAX_TARGETS})
    return target_id, not is_used


def unregister(tx: Tx, device_id: str, target_id: str | None) -> int:
    """How many are gone; None means all of the device."""
    return tx.execute(_FORGET, {"device": device_id, "target": target_id}).rowcount


def retire_stale(tx: Tx, device_id: str, now: float) -> None:
    tx.execute(_STALE, {"device": device_id, "now": now, "stale": now - STALE_S})


def forgive(tx: Tx) -> None:
    """What was wrong on our side may have been repaired: a start tries again. What a provider asked for stays."""
    tx.execute(_FORGIVE)


# what came of it


def record(
    tx: Tx, target: Target, notice: Notice, outcome: Outcome, *, now: float, ms: int, not_before: float | None = None
) -> None:
    """A target that will never work again is retired; one that needs no push about this any more is settled."""
    said = {
        "device": target.device_id, "target": target.target_id, "provider": target.provider, "now": now, "ms": ms,
        "kind": notice.kind, "collapse": notice.collapse, "head": notice.head, "verdict": outcome.verdict.value,
        "code": outcome.code, "status": outcome.status, "detail": outcome.detail,
    }  # fmt: skip
    tx.execute(_OUTCOME, said)
    tx.execute(_TRIM, {"device": target.device_id, "most": MAX_OUTCOMES})
    after = {"target": target.target_id, "now": now, "head": notice.head}
    if outcome.verdict is Verdict.SENT:
        tx.execute(_SENT, after)
        return
    is_gone, is_dropped = outcome.verdict is Verdict.GONE, outcome.verdict is Verdict.DROPPED
    tx.execute(
        _FAILED,
        after | {
            "code": outcome.code, "not_before": not_before, "settled": int(is_dropped), "retire": int(is_gone),
        },
    )  # fmt: skip


def outcomes(tx: Tx, device_id: str, limit: int) -> list[dict[str, object]]:
    """Newest first."""
    names = ("at", "provider", "target_id", "kind", "collapse", "head", "verdict", "code", "status", "detail", "ms")
    rows = tx.all(_OUTCOMES, {"device": device_id, "limit": limit})
    return [dict(zip(names, row, strict=True)) for row in rows]


def statuses(tx: Tx, device_id: str) -> Sequence[Status]:
    return [Status(*row) for row in tx.all(_LOOK, {"device": device_id})]


def device_name(tx: Tx, device_id: str) -> str | None:
    row = tx.one(_DEVICE, {"device": device_id})
    return None if row is None else row[0]


# wishes


def preferences(tx: Tx, device_id: str) -> Preferences:
    row = tx.one(_PREFS, {"device": device_id})
    try:
        return Preferences() if row is None else Preferences.model_validate_json(row[0])
    except ValidationError as exc:  # such as a zone that another host had: better a push too many than no way in
        log.warning("wishes about push cannot be read", extra={"device": device_id, "errors": exc.error_count()})
        return Preferences()


def set_preferences(tx: Tx, device_id: str, wishes: Preferences) -> None:
    tx.execute(_SET_PREFS, {"device": device_id, "prefs": wishes.model_dump_json(by_alias=True)})


def body_of(tx: Tx, payload_id: str) -> bytes | None:
    row = tx.one(_BODY, {"id": payload_id})
    return None if row is None else row[0]
