"""Which headers go on to Hermes, and which come back. Pure. Names are in lower case."""

from __future__ import annotations

import re
from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

# Of one connection (RFC 9110 §7.6.1), and so never of the next; whatever `Connection` names besides joins them.
_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade http2-settings".split()
)
# The caller's credentials are for the relay; where it comes from is nobody's business behind it, and a Hermes that
# sees an Origin refuses. Accept-Encoding: an answer that is compressed on the way is held until a block is full.
_NOT_SENT = _HOP | frozenset(
    b"authorization cookie cookie2 x-api-key api-key host origin referer content-length expect accept-encoding "
    b"forwarded via x-real-ip x-client-ip x-cluster-client-ip true-client-ip fastly-client-ip early-data "
    b"x-http-method x-http-method-override x-method-override".split()
)
_NOT_SENT_BEGINNINGS = (
    b"x-forwarded", b"x-original-", b"x-envoy-", b"x-talaria-", b"cf-", b"sec-", b"tailscale-", b"proxy-",
    b"access-control-",
)  # fmt: skip
# What speaks for an origin, which is the relay's: cookies, CORS, what a browser remembers of it. `Date` the server
# writes; the others would let Hermes open files of a proxy in front (X-Accel-Redirect), or pass for the relay.
_NOT_RETURNED = _HOP | frozenset(
    b"set-cookie set-cookie2 www-authenticate authentication-info strict-transport-security alt-svc clear-site-data "
    b"content-security-policy content-security-policy-report-only x-content-type-options x-frame-options "
    b"referrer-policy public-key-pins public-key-pins-report-only nel report-to reporting-endpoints "
    b"service-worker-allowed sourcemap refresh link location server x-powered-by date x-request-id x-sendfile".split()
)
_NOT_RETURNED_BEGINNINGS = (b"access-control-", b"x-accel-", b"x-talaria-", b"x-lighttpd-", b"proxy-")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

EVENTS = b"text/event-stream"
# A proxy must neither wait for more of a stream nor compress it.
_UNBUFFERED: Headers = [(b"x-accel-buffering", b"no"), (b"cache-control", b"no-cache, no-transform")]


def sent(headers: Headers) -> Headers:
    named = _named_by_connection(headers)
    return [
        (name, value)
        for name, value in headers
        if name not in _NOT_SENT and not name.startswith(_NOT_SENT_BEGINNINGS) and name not in named
    ]


def returned(headers: Headers) -> Headers:
    """With what keeps a stream of events from being held up on its way."""
    named = _named_by_connection(headers)
    kept = [
        (name, value)
        for name, value in headers
        if name not in _NOT_RETURNED
        and not name.startswith(_NOT_RETURNED_BEGINNINGS)
        and name not in named
        and not _CONTROL.search(value)
    ]
    if is_event_stream(headers):
        kept = [(name, value) for name, value in kept if name != b"cache-control"] + _UNBUFFERED
    return kept


def is_event_stream(headers: Headers) -> bool:
    return value_of(headers, b"content-type").lower().startswith(EVENTS)


def value_of(headers: Headers, name: bytes) -> bytes:
    """The first of this name; empty without one."""
    return next((value for given, value in headers if given == name), b"")


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    return frozenset(
        option.strip().lower() for name, value in headers if name == b"connection" for option in value.split(b",")
    )


def lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])
