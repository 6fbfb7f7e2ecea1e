"""What the web app's routes answer, whoever asks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from app.web import site


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(site.router)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://relay.test") as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/pair", "/static/js/main.js", "/manifest.webmanifest", "/favicon.ico"])
async def test_every_answer_is_locked_down(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert answer.status_code == 200
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-cache"


async def test_head_says_what_get_would(http: httpx.AsyncClient) -> None:
    for path in ("/", "/static/css/base.css"):
        head, get = await http.head(path), await http.get(path)
        assert head.status_code == 200
        assert head.content == b""
        assert head.headers == get.headers


async def test_an_unchanged_file_is_not_sent_again(http: httpx.AsyncClient) -> None:
    first = await http.get("/static/js/wire.js")
    for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = await http.get("/static/js/wire.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    assert (await http.get("/static/js/wire.js", headers={"If-None-Match": '"other"'})).status_code == 200


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/static/js/main.js", "text/javascript; charset=utf-8"),
        ("/static/vendor/preact/preact.mjs", "text/javascript; charset=utf-8"),
        ("/static/css/base.css", "text/css; charset=utf-8"),
        ("/static/icons/talaria.svg", "image/svg+xml"),
        ("/static/icons/talaria-180.png", "image/png"),
        ("/manifest.webmanifest", "application/manifest+json"),
    ],
)
async def test_media_types(http: httpx.AsyncClient, path: str, media_type: str) -> None:
    assert (await http.get(path)).headers["content-type"] == media_type


@pytest.mark.parametrize(
    "path",
    [
        "/static/", "/static/js", "/static/nothing.js", "/static/%00", "/static/" + "x" * 300,
        "/static/../site.py", "/static/%2e%2e/site.py", "/static/..%2fsite.py", "/static//etc/passwd",
        "/static/%2fetc%2fpasswd", "/static/js/%2e%2e/%2e%2e/%2e%2e/site.py",
    ],
)  # fmt: skip
async def test_nothing_else_is_served(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404
