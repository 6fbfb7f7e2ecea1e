"""What a route says of itself at its decorator, for `/openapi.json`.

An answer is described by an example, and its schema is made of that: the keys are there, the values are of those types,
and more keys may come. So the two cannot disagree, and a test compares them with what the relay really answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

REF = "#/components/schemas/{model}"
JSON = "application/json"

Responses = dict[int | str, Any]
Security = list[dict[str, list[str]]]  # any of these

OPERATOR: Security = [{"operator": []}]
HOST: Security = [{"operator": []}, {"link": []}]
DEVICE: Security = [{"device": []}]

ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "layer", "retryable", "request_id"],
            "properties": {
                "code": {"type": "string", "description": "stable"},
                "message": {"type": "string", "description": "for people: what is wrong, and what to do"},
                "layer": {"type": "string", "enum": ["relay", "upstream", "agent", "device"]},
                "retryable": {"type": "boolean", "description": "the same request may succeed later"},
                "request_id": {"type": ["string", "null"], "description": "as in X-Request-Id and in the log"},
            },
        }
    },
    "example": {
        "error": {
            "code": "operator_required", "layer": "relay", "retryable": False, "request_id": "0f1e2d3c4b5a6978",
            "message": "This needs the operator token of the relay's data directory, as a bearer.",
        }
    },
}  # fmt: skip
OURS: dict[str, Any] = {"schema": {"$ref": REF.format(model="Error")}}
LINE: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
_HEADERS = {"X-Talaria-Error": {"description": "the code of the error", "schema": {"type": "string"}}}


def with_grant(grant: str) -> Security:
    return [*HOST, {"device": [grant]}]


@dataclass(frozen=True, slots=True)
class OrNull:
    """In an example: this, and at times null."""

    example: Any


class Named(dict[str, Any]):
    """In an example: an object whose keys are names, and whose values are all of one kind."""


def answers(example: Any, status: int = 200, says: str = "Done") -> Responses:
    """`responses` of a route. A key of the example that ends in `?` is not always there."""
    content = {"schema": schema_of(example), "example": plain(example)}
    return {status: {"description": says, "content": {JSON: content}}}


def sends(says: str, *media_types: str, status: int | str = 200) -> Responses:
    """Likewise, for what has no shape of ours."""
    content: dict[str, Any] = {media_type: {"schema": {}} for media_type in media_types}
    return {status: {"description": says} | ({"content": content} if content else {})}


def refusal_of(content: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": "Refused", "headers": _HEADERS, "content": content}


def refused(example: Any, lines: Sequence[int] = ()) -> Responses:
    """Likewise, where every refusal of the route is hermes-relay's: that body, or a line of text with those statuses.

    What is refused before it comes to the route looks as it does everywhere.
    """
    either = {JSON: {"schema": {"anyOf": [schema_of(example), OURS["schema"]]}, "example": plain(example)}}
    return {"default": refusal_of(either), **{status: refusal_of({**LINE, JSON: OURS}) for status in lines}}


def takes(body: type[BaseModel] | Mapping[str, Any], example: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`openapi_extra` of a route that reads its body by hand: a model with an example, or an example alone."""
    content: dict[str, Any]
    if isinstance(body, Mapping):
        content = {"schema": schema_of(body), "example": plain(body)}
    else:
        content = {"schema": body.model_json_schema(ref_template=REF), "example": example}
    return {"requestBody": {"required": True, "content": {JSON: content}}}


def header(name: str, says: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """One of `parameters` in `openapi_extra`: a header that is read by hand."""
    return {"name": name, "in": "header", "required": False, "description": says, "schema": dict(schema)}


def schema_of(example: Any) -> dict[str, Any]:
    match example:
        case OrNull(inner):
            return {"anyOf": [schema_of(inner), {"type": "null"}]}
        case Named():
            return {"type": "object", "additionalProperties": _any_of(list(example.values()))}
        case Mapping():
            required = [key for key in example if not key.endswith("?")]
            properties = {key.removesuffix("?"): schema_of(value) for key, value in example.items()}
            return {"type": "object", "properties": properties} | ({"required": required} if required else {})
        case list():
            return {"type": "array", "items": _any_of(example)}
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case _:
            return {}


def _any_of(examples: Sequence[Any]) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for example in examples:
        schema: dict[str, Any] = {"type": "null"} if example is None else schema_of(example)
        if schema not in found:
            found.append(schema)
    return {"anyOf": found} if len(found) > 1 else found[0] if found else {}


def plain(example: Any) -> Any:
    """The example as it is sent."""
    match example:
        case OrNull(inner):
            return plain(inner)
        case Mapping():
            return {key.removesuffix("?"): plain(value) for key, value in example.items()}
        case list():
            return [plain(one) for one in example]
        case _:
            return example
