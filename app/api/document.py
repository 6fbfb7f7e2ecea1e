"""`/openapi.json`: what the routes say of themselves, who may call them, and how they refuse.

Who may call is read off the dependency that asks, and how a route refuses off its class: the document cannot say other
than the code does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, iter_route_contexts

from app.api import deps
from app.api.bodies import PeerRoute
from app.api.openapi import (
    DEVICE,
    ERROR,
    HOST,
    JSON,
    LINE,
    OPERATOR,
    OURS,
    Responses,
    Security,
    refusal_of,
    schema_of,
    with_grant,
)

ABOUT = """The relay over HTTP. A failure is an `Error`, with its code in `X-Talaria-Error` too; routes that
hermes-relay had first refuse with its bodies. Keys that a client does not know are to be ignored.

Not here: the sockets `/ws` and `/agent/link`, which deploy/protocol.md describes; the paths of the Hermes API (`/v1/…`,
`/api/sessions…`, `/api/jobs…`, `/p/{profile}/…`), which go to Hermes as they come, for a device with `chat`, by its
session token or its API token; `POST /mcp`, for the operator and the link, whose tools MCP lists by itself; the web
app; and `/doctor/probe`, which answers only to the relay's own checks."""

SCHEMES: dict[str, Any] = {
    "operator": {
        "type": "http", "scheme": "bearer",
        "description": "The operator token of the relay's data directory: `talaria token operator`.",
    },
    "link": {
        "type": "http", "scheme": "bearer",
        "description": "The link token, for the agent's tools: `talaria token link`.",
    },
    "device": {
        "type": "http", "scheme": "bearer",
        "description": "The session token of a paired device; roles are the grants that its session must have.",
    },
}  # fmt: skip

WHO: Mapping[Callable[..., Any], Security] = {
    deps.operator: OPERATOR,
    deps.operator_or_host_tool: OPERATOR,
    deps.host_or_host_tool: HOST,
    deps.device: DEVICE,
    deps.device_or_host_tool: OPERATOR + DEVICE,
    deps.device_or_host: HOST + DEVICE,
    deps.with_chat: with_grant("chat"),
    deps.with_chat_or_host_tool: with_grant("chat"),
    deps.with_bridge_or_host_tool: with_grant("bridge"),
    deps.with_notifications_or_host_tool: with_grant("notifications"),
}


class App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = document(self)
        return self.openapi_schema


def document(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    schemas: dict[str, Any] = {"Error": ERROR}
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in route.methods or ():
                _complete(found["paths"][route.path_format][method.lower()], route, schemas)
    found["components"] = {"schemas": schemas, "securitySchemes": SCHEMES}
    return found


def _complete(operation: dict[str, Any], route: APIRoute, schemas: dict[str, Any]) -> None:
    """What the framework does not know. It also drops the nulls of examples, so these are taken from the route."""
    extra, responses = route.openapi_extra or {}, operation["responses"]
    operation["tags"] = list(dict.fromkeys(operation["tags"]))  # a router within a router says its own twice
    responses.pop("422", None)  # what does not fit is 400 here
    responses.update({str(status): said for status, said in route.responses.items()})
    for status, said in _refusals(route).items():
        responses.setdefault(status, said)
    for media_type, content in extra.get("requestBody", {}).get("content", {}).items():
        schema = dict(content["schema"])
        schemas.update(schema.pop("$defs", {}))
        operation["requestBody"]["content"][media_type] = content | {"schema": schema}
    operation["security"] = extra["security"] if "security" in extra else security_of(route.dependant)


def _refusals(route: APIRoute) -> Responses:
    if not isinstance(route, PeerRoute):
        return {"default": refusal_of({JSON: OURS})}
    said = schema_of({**route.beside, "error": "invalid JSON body"})
    either = {JSON: {"schema": {"anyOf": [said, OURS["schema"]]}}}
    return {
        "400": refusal_of(either), "default": refusal_of({JSON: OURS}),
        **{str(status): refusal_of({**LINE, JSON: OURS}) for status in route.texts},
    }  # fmt: skip


def security_of(dependant: Dependant) -> Security:
    """Of the first dependency that asks who calls. None does: anyone may."""
    for one in dependant.dependencies:
        found = (WHO.get(one.call) if one.call is not None else None) or security_of(one)
        if found:
            return found
    return []
