"""What hermes-relay's clients scan, made of a request to mint it and of where this relay is reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api.bodies import present
from app.api.errors import BodyInvalid
from app.pairing.offers import Offer
from app.pairing.payload import ANYWHERE, LOOPBACK, Place, QrSecret, built, lan_address
from app.settings import ServerSettings
from app.wire.payloads import check_depth

MAX_ENDPOINTS = 16  # a QR code of more could not be scanned


class Scan:
    """`host`, `port`, `tls` and `api_key` of the body say where the API is, where it is not behind this relay."""

    def __init__(self, body: Mapping[str, Any], server: ServerSettings) -> None:
        """Raises BodyInvalid."""
        self._own = own = own_place(server)
        self._body = body
        if body.get("port") is not None and type(body["port"]) is not int:
            raise BodyInvalid("'port' must be an integer")
        if not isinstance(body.get("tls") or False, bool):
            raise BodyInvalid("'tls' must be true or false")
        for name in ("host", "api_key", "dashboard_url"):
            if not isinstance(body.get(name) or "", str):
                raise BodyInvalid(f"'{name}' must be a text")
        tls = own.tls if body.get("tls") is None else bool(body["tls"])
        self._api = Place(_host(body, own), own.port if body.get("port") is None else body["port"], tls)
        if not 0 < self._api.port < 65536:
            raise BodyInvalid("'port' must be between 1 and 65535")
        self._endpoints = _candidates(endpoints_of(body) or [], own if server.public_url else None)

    @property
    def wants_api_token(self) -> bool:
        return not self._body.get("api_key") and self._body.get("api_token") is not False

    def shown(self, offer: Offer, secret: QrSecret, fingerprint: str) -> dict[str, Any]:
        terms: dict[str, Any] = {}
        if present(self._body, "ttl_seconds"):
            terms["ttl_seconds"] = offer.ttl or 0
        if present(self._body, "grants"):
            asked = self._body["grants"]
            terms["grants"] = {name: offer.grants[name] or 0 for name in asked if name in offer.grants}
        if present(self._body, "transport_hint"):
            terms["transport_hint"] = self._body["transport_hint"]
        dashboard_url = (self._body.get("dashboard_url") or "").rstrip("/")
        text, url = built(
            secret, code=offer.code, key=offer.api_token or self._body.get("api_key") or "", api=self._api,
            relay=self._own, terms=terms, endpoints=self._endpoints, dashboard_url=dashboard_url,
            fingerprint=fingerprint,
        )  # fmt: skip
        return {
            "qr_payload": text, "pairing_url": url, "host": self._api.host, "port": self._api.port,
            "tls": self._api.tls, "relay_url": self._own.socket_url,
            **({"endpoints": self._endpoints} if self._endpoints else {}),
            **({"dashboard_url": dashboard_url} if dashboard_url else {}),
        }  # fmt: skip


def endpoints_of(body: Mapping[str, Any]) -> list[Any] | None:
    """Raises BodyInvalid."""
    endpoints = body.get("endpoints")
    if endpoints is None:
        return None
    if not isinstance(endpoints, list):
        raise BodyInvalid("endpoints must be an array")
    if len(endpoints) > MAX_ENDPOINTS:
        raise BodyInvalid(f"endpoints may be at most {MAX_ENDPOINTS}")
    try:
        check_depth(endpoints)
    except ValueError as exc:
        raise BodyInvalid(f"endpoints: {exc}") from None
    return endpoints


def own_place(server: ServerSettings) -> Place:
    """The public origin; without one, the best guess at what a phone in the same network can reach."""
    if server.public_url:
        return Place.of_url(server.public_url)
    host = (lan_address() or LOOPBACK[0]) if server.host in ANYWHERE else server.host
    return Place(host, server.port, tls=False)


def _host(body: Mapping[str, Any], own: Place) -> str:
    host = (body.get("host") or "").strip()
    if not host:
        return own.host
    found = lan_address() if host in LOOPBACK else None if host in ANYWHERE else host
    if not found:
        raise BodyInvalid("missing 'host' — API server address could not be resolved")
    return found


def _candidates(given: list[Any], own: Place | None) -> list[Any]:
    """Objects as they came. URLs become candidates, in their order; then the public origin follows them."""
    if not any(isinstance(one, str) for one in given):
        return given
    try:
        places = [Place.of_url(one) if isinstance(one, str) else one for one in given]
    except ValueError as exc:
        raise BodyInvalid(f"endpoints: {exc}") from None
    if own is not None and own not in places:
        places.append(own)
    return [one.as_endpoint(n) if isinstance(one, Place) else one for n, one in enumerate(places)]
