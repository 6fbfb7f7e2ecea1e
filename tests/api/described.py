"""Holds every answer against `/openapi.json`: which operation it is, and whether it is described so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from app.bridge.commands import COMMANDS

Json = dict[str, Any]
# What a phone or an agent said is in there, besides what is described.
OPEN = {"/bridge/status", "/bridge/devices", "/messages/{message_id}", "/phone/threads", "/phone/replies"}
OWN = {"/readyz", *(command.path for command in COMMANDS)}  # a status that is no refusal of ours
Operation = tuple[str, str]  # method, path as the document has it


@dataclass
class Described:
    """`seen` are the statuses each operation has answered with."""

    document: Json
    seen: set[tuple[str, str, str]] = field(default_factory=set)

    def operations(self) -> Iterator[tuple[Operation, Json]]:
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield (method.upper(), path), operation

    def find(self, method: str, path: str) -> tuple[Operation, Json]:
        """A path without parameters comes first."""
        found = [one for one in self.operations() if one[0][0] == method and _pattern(one[0][1]).fullmatch(path)]
        assert found, f"{method} {path} is not described"
        return min(found, key=lambda one: one[0][1].count("{"))

    def check(self, response: httpx.Response) -> None:
        """Raises AssertionError, ValidationError."""
        request = response.request
        (method, path), operation = self.find(request.method, request.url.path)
        status = str(response.status_code)
        said = operation["responses"].get(status) or operation["responses"]["default"]
        self.seen.add((method, path, status))
        if "content" not in said:
            assert not response.content
            return
        media_type = response.headers["content-type"].partition(";")[0]
        described = said["content"].get(media_type) or said["content"].get("*/*")
        assert described is not None, f"{method} {path} {status} is {media_type}"
        if media_type == "application/json" and "*/*" not in said["content"]:
            self.validate(described["schema"], response.json())
            if path not in OPEN and not response.is_error:
                assert list(unsaid(described["schema"], response.json())) == [], f"{method} {path} says more"
        if response.is_error and path not in OWN:
            assert response.headers["x-talaria-error"]

    def validate(self, schema: Json, value: object) -> None:
        Draft202012Validator({**schema, "components": self.document["components"]}).validate(value)

    def client(self, url: str, headers: dict[str, str]) -> httpx.AsyncClient:
        async def check(response: httpx.Response) -> None:
            await response.aread()
            self.check(response)

        hooks = {"response": [check]}
        return httpx.AsyncClient(base_url=url, headers=headers, event_hooks=hooks, timeout=20, trust_env=False)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))


def unsaid(schema: Json, value: object) -> Iterator[str]:
    """Keys that the answer has and the example has not."""
    if "anyOf" in schema:
        found = [list(unsaid(one, value)) for one in schema["anyOf"]]
        yield from min(found, key=len)
    elif isinstance(value, list):
        for one in value:
            yield from unsaid(schema.get("items", {}), one)
    elif isinstance(value, dict) and "properties" in schema:
        yield from value.keys() - schema["properties"].keys()
        for key in value.keys() & schema["properties"].keys():
            yield from unsaid(schema["properties"][key], value[key])
