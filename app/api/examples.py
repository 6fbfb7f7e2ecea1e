"""What the routes answer, by example: `/openapi.json` shows these, and makes its schemas of them."""

from __future__ import annotations

from typing import Any

from app.api.openapi import Named, OrNull

Example = dict[str, Any]

_AT = 1796085530.9
_ENDS = OrNull(1798677530.9)  # null: never
_DEVICE = "dev-3d30392d37f9ce30"
_TOKEN = "talaria-refresh-KIJbHCITrMjfrioNM-Z-mNwO5_cUrFBQ"  # noqa: S105 (made up)
_SESSION_TOKEN = "eyJhbGciOiJFZERTQSIsImtpZCI6ImIwZTIifQ.eyJpc3MiOiJ0YWxhcmlhIn0.g9SMxT1xMk1ex0q"  # noqa: S105
_GRANTS = Named({"chat": 1798677530.9, "notifications": None})
_LASTING = Named({"chat": None, "bridge": 604800})  # in seconds

# health

HEALTH: Example = {"status": "ok", "version": "0.1.0", "platform": "talaria"}
ALIVE: Example = {"status": "ok"}
UPSTREAM: Example = Named({
    "api": {"state": "up", "version?": "0.19.0", "route?": "local"},
    "dashboard": {"state": "off"},
    "gateway": {"state": "down", "code?": "gateway_down", "message?": "Hermes' messaging gateway is not connected."},
})  # fmt: skip
READY: Example = {"status": "ready", "database": "ok", "upstream": UPSTREAM}
NOT_READY: Example = {"status": "draining", "database": "ok", "upstream": UPSTREAM}
IDENTITY: Example = {
    "algorithm": "Ed25519", "origin": "https://talaria.example.org",
    "public_key": "iYJtOYotvQT32R2WFuPT-Qxpf_ROjFa0NQanc4FuvZI", "fingerprint": "0cXJy8u8bvRc0nDCNjOxig",
    "signature": "3BreOGW6nnfYeYIdd4cv7y5uUwByOrp2IslIyauU_uHyvzloQX3ChspdwMbwt3RMcY4SCiQ8Obmc0AFx70VbAQ",
}  # fmt: skip
DOCTOR: Example = {
    "ok": True,
    "findings": [
        {
            "name": "public URL", "layer": "relay", "state": "warn", "do?": "set TALARIA_PUBLIC_URL",
            "says": "none is set: only this machine can reach the relay",
        }
    ],
}  # fmt: skip

# as hermes-relay tells of itself

INFO: Example = {
    "version": "0.1.0", "plugin_version": "0.1.0", "platform": "talaria", "protocol_version": 1,
    "capabilities": ["bridge", "media", "notifications", "proactive", "profiles", "terminal"],
    "profiles": [{"name": "default", "is_default": True, "relay_state": "ready"}], "uptime_seconds": 92,
    "session_count": 1, "paired_device_count": 1, "pending_commands": 0, "media_entry_count": 0, "health": "ok",
    "gateway_heartbeat": {"status": "up", "supported": True}, "gateway_prior_exit": {"prior_exit": "unknown"},
}  # fmt: skip
RUNTIME_SECURITY: Example = {
    "ok": True, "scope": "runtime", "allow_insecure_api_bearer": False, "trust_proxy_headers": False,
}  # fmt: skip
INJECTED: Example = {"enabled": False, "blocks": []}

# pairing

MINT: Example = {
    "for?": "web", "name?": "Ada's phone", "grants?": Named({"chat": 0, "bridge": 86400}), "ttl_seconds?": 2592000,
}  # fmt: skip
MINTED: Example = {
    "ok": True, "code": "B52Y1EN3", "expires_at": 1796086223, "offer_id": "9ee8081e00930d3d",
    "web_url": "https://talaria.example.org/pair#code=B52Y1EN3&fp=0cXJy8u8bvRc0nDCNjOxig",
    "fingerprint": "0cXJy8u8bvRc0nDCNjOxig", "public": True, "name": OrNull("Ada's phone"),
    "ttl_seconds": OrNull(2592000), "grants": _LASTING, "needs_approval?": True, "confirms?": True,
    "qr_payload?": '{"hermes":1,"host":"192.168.1.20","port":8767,"key":"…","tls":false,"relay":{…},"sig":"…"}',
    "pairing_url?": "hermes-relay://pair?payload=eyJoZXJtZXMiOjF9", "host?": "192.168.1.20", "port?": 8767,
    "tls?": False, "relay_url?": "ws://192.168.1.20:8767", "endpoints?": [], "dashboard_url?": "http://192.168.1.20:9119",
}  # fmt: skip
REGISTER: Example = {"code": "ABC234", "name?": "Ada's phone", "ttl_seconds?": 2592000, "endpoints?": []}
REGISTERED: Example = {"ok": True, "code": "ABC234", "endpoints?": []}
PENDING: Example = {
    "pending": [
        {
            "confirm": "402913", "offer_id": "9ee8081e00930d3d", "offer_name": OrNull("Ada's phone"),
            "device": {"device_name?": OrNull("Pixel")}, "expires_at": 1796086223,
        }
    ]
}  # fmt: skip
CONFIRM: Example = {"confirm": "402913", "allow": True}
CONFIRMED: Example = {"ok": True, "allowed": True, "offer_id": "9ee8081e00930d3d"}
OFFER: Example = {
    "state": "redeemed", "expires_at": 1796086223, "device_id": OrNull(_DEVICE), "device_name": OrNull("Pixel"),
    "confirm": OrNull("402913"),
}  # fmt: skip
REDEEM: Example = {"pairing_code": "B52Y1EN3", "device_name": "Pixel", "device_platform": "android"}
RENEWED: Example = {
    "session_token": _SESSION_TOKEN, "refresh_token": _TOKEN, "expires_at": _ENDS, "grants": _GRANTS,
}  # fmt: skip
WELCOME: Example = {
    "session_token": _SESSION_TOKEN, "refresh_token?": _TOKEN, "server_version": "0.1.0", "expires_at": _ENDS,
    "grants": _GRANTS, "transport_hint": "wss", "profiles": [{"name": "default", "is_default": True}],
    "device_id": _DEVICE, "relay_id": "b0abc88391c750e2f4c4ac1c0ba19133", "protocol": 1, "epoch": "4e35adca6fec7596",
    "head": 0, "limits": {"frame_bytes": 4194304, "kept_bytes": 262144}, "heartbeat_s": 30, "upstream": UPSTREAM,
    "turns": [], "approvals": [], "questions": [],
    "push": {"state": "none", "providers": ["ntfy", "webpush"], "vapid_key": "BGkBvi9U2TsNuRJrjHQOHRoN"},
}  # fmt: skip
TO_CONFIRM: Example = {"confirm": "402913", "expires_at": 1796086223}

# sessions

SESSION: Example = {
    "token_prefix": "341544a3", "device_name": "Pixel", "device_id": _DEVICE, "created_at": _AT, "first_seen": _AT,
    "last_seen": _AT, "expires_at": _ENDS, "grants": _GRANTS, "transport_hint": "wss", "client_surface": "android",
    "device_form_factor": "phone", "device_model": "Pixel 9", "device_platform": "android", "is_current": True,
}  # fmt: skip
SESSIONS: Example = {"sessions": [SESSION]}
RENEW: Example = {"refresh_token": _TOKEN}
TICKET: Example = {"ticket": "talaria-ticket-xNUJwI6TztnZw7TfLpcSQfwdflBdN6bt", "expires_at": _AT}
ROTATED: Example = {"ok": True, "kid": "f98388ce89b47405", "gone": ["b0e2ed506ff85e66"]}
CHANGE: Example = {"name?": "Ada's phone", "ttl_seconds?": 86400, "grants?": Named({"terminal": 1})}
CHANGED: Example = {"ok": True, "token_prefix": "341544a3", "expires_at": _ENDS, "grants": _GRANTS}
REVOKED: Example = {"ok": True, "revoked": "341544a3", "revoked_self": False}
_PUSH_HEALTH: Example = {
    "state": "ok", "last_ok_at": OrNull(_AT),
    "last_error": OrNull({"at": _AT, "provider": "ntfy", "code": "connection_refused"}),
}  # fmt: skip
DEVICES: Example = {
    "devices": [
        {
            "device_id": _DEVICE, "name": "Pixel", "about": Named({"surface": "android"}), "created_at": _AT,
            "last_seen": OrNull(_AT), "online": True, "push": _PUSH_HEALTH,
            "sessions": [
                {
                    "token_prefix": "341544a3", "created_at": _AT, "last_seen": _AT, "expires_at": _ENDS,
                    "grants": _GRANTS, "is_over": False,
                }
            ],
        }
    ]
}  # fmt: skip

# push

TARGET: Example = {"provider": "ntfy"}
_TARGET: Example = {
    "target_id": "ec306de82e2872cb", "provider": "ntfy", "server?": "https://ntfy.example.org",
    "topic?": "talaria-tGBHqFNVK2G8BfbZlb8kS3DT5ug9NElr",
    "url?": "https://ntfy.example.org/talaria-tGBHqFNVK2G8BfbZlb8kS3DT5ug9NElr",
}  # fmt: skip
TARGETED: Example = _TARGET
REMOVED: Example = {"removed": 1}
WISHES: Example = {"kinds": {"cron": False}, "min_turn_s": 30}
PREFERENCES: Example = {
    "kinds": Named({"message": True, "cron": False, "turn": True, "approval": True, "question": True}),
    "quiet": OrNull({"from": "22:00", "to": "07:00", "zone": "Europe/Berlin", "except": ["approval"]}),
    "min_turn_s": 30.0,
}  # fmt: skip
_OUTCOME: Example = {
    "at": _AT, "provider": "ntfy", "target_id": OrNull("ec306de82e2872cb"), "kind": "message", "collapse": "message",
    "head": 12, "verdict": "later", "code": OrNull("connection_refused"), "status": OrNull(503),
    "detail": OrNull("nothing listens there"), "ms": 5,
}  # fmt: skip
PUSH: Example = {
    **_PUSH_HEALTH, "providers": ["ntfy", "webpush"], "vapid_key": "BPrOvksZix2OU_aOEcbGVFgs8sbWGd5jpn4EHOhX",
    "targets": [
        {
            **_TARGET, "created_at": _AT, "seen_at": _AT, "ok_at": OrNull(_AT), "failed_at": OrNull(_AT),
            "failure": OrNull("connection_refused"), "retired_at": OrNull(_AT), "retired": OrNull("gone"),
        }
    ],
    "preferences": PREFERENCES, "outcomes": [_OUTCOME],
}  # fmt: skip
PUSH_TEST: Example = {"device_id": _DEVICE}
PUSH_TESTED: Example = {
    "device_id": _DEVICE, "name": "Pixel", "message_id": OrNull("push-test-bfcba0afa50cc1d5"), "online": True,
    "answers": True,
    "hops": [
        {"hop": "target", "ok": OrNull(True), "said?": "1 registered: ntfy"},
        {
            "hop": "reached", "ok": OrNull(False), "said?": "connection_refused: nothing listens there",
            "advice?": "Check that the push server runs, and its port.", "target_id?": "ec306de82e2872cb",
            "provider?": "ntfy",
        },
    ],
}  # fmt: skip
ANSWERED: Example = {"answered": False}

# messages

MESSAGE: Example = {"text": "The backup has finished.", "title": "Backup", "ttl_seconds": 86400}
_MESSAGE = "msg-03954dbc0d7c4f12f3afd1f3"
ACCEPTED: Example = {
    "message_id": _MESSAGE, "deliveries": [{"device_id": _DEVICE, "seq": 2}], "refused?": ["dev-fab23088f1c7b46c"],
}  # fmt: skip
FOLLOWED: Example = {
    "message_id": _MESSAGE, "kind": "message", "sender": OrNull("operator"), "created_at": _AT,
    "expires_at": OrNull(_AT),
    "message": {"text": "The backup has finished.", "message_id?": _MESSAGE, "title?": "Backup"},
    "deliveries": [{"device_id": _DEVICE, "seq": 2, "state": "void", "reason?": "expired"}],
}  # fmt: skip
TAKEN_BACK: Example = {"message_id": _MESSAGE, "cancelled": [_DEVICE]}
DELIVERED: Example = {"delivered": False, "message_id": _MESSAGE, "queued?": True, "buffered?": 4}
OUTBOUND: Example = {
    "queued": 1,
    "messages": [{"message_id": _MESSAGE, "chat_id": OrNull("home"), "text": "hello", "sent_at": 1796085735280}],
}  # fmt: skip
CANCELLED: Example = {"cancelled": 1}
THREADS: Example = {
    "threads": [
        {
            "chat_id": "home", "thread_id?": "7", "name": "Home", "unread": 0, "updated_at": _AT,
            "last?": {"text": "hello"},
        }
    ]
}  # fmt: skip
REPLIES: Example = {"replies": [{"text": "yes", "chat_id": OrNull("home"), "device_id?": _DEVICE}]}

# files

UPLOADED: Example = {"ok": True, "token": "nHX-WzNkb1WpsTT6_p5Ls3f735bVZjtp", "expires_at": OrNull(_AT)}
REGISTER_FILE: Example = {"path": "/srv/agent/chart.png", "content_type": "image/png", "file_name": "chart.png"}
REGISTERED_FILE: Example = {**UPLOADED, "sensitive": False}
TOO_LARGE: Example = {"ok": False, "error": "file too large: at most 104857600 bytes"}

# phones

_PHONE: Example = {
    "device": {"device_id": _DEVICE, "name?": "Pixel 9", "battery_percent?": 81}, "device_id": _DEVICE,
    "device_name": "Pixel", "phone_connected": True, "connected": True, "active": True, "last_seen_seconds_ago": 2,
    "status_at": _AT, "aliases": ["Pixel", "phone"], "session_token_prefix": "cc7cc438", "client_surface": "android",
    "device_form_factor": "phone",
}  # fmt: skip
PHONE: Example = _PHONE
NO_PHONE: Example = {"phone_connected": False, "last_seen_seconds_ago": None, "error": "no phone connected"}
PHONES: Example = {
    "active_device_id": OrNull(_DEVICE), "most_recent_device_id": OrNull(_DEVICE), "devices": [_PHONE], "count": 1,
}  # fmt: skip
CHOOSE: Example = {"device": "pixel"}
CHOSEN: Example = {
    "ok": True, "active_device_id": _DEVICE, "device_id": _DEVICE, "device_name": "Pixel",
    "alias_used": OrNull("pixel"), "aliases": ["Pixel", "phone"],
}  # fmt: skip
ACTIVITY: Example = {
    "activity": [
        {
            "request_id": "4b5fced94e103c2c5bc7f2041f1e4032", "method": "GET", "path": "/screen", "params": Named(),
            "sent_at": _AT * 1000, "response_status": OrNull(200), "result_summary": OrNull("{nodes}, 154 bytes"),
            "error": OrNull("timeout"), "decision": "executed", "device_id": _DEVICE, "device_name": "Pixel",
            "alias_used": OrNull("pixel"), "caller": "operator",
        }
    ]
}  # fmt: skip
NOTIFICATIONS: Example = {
    "ok": True, "count": 1,
    "notifications": [
        {
            "package_name": "org.example.mail", "title": OrNull("Ada"), "text": OrNull("Lunch?"),
            "sub_text": OrNull("Work"), "posted_at": OrNull(1796085530900), "key": "0|org.example.mail|7",
            "removed_at?": _AT,
        }
    ],
}  # fmt: skip
