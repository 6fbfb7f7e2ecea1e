"""Serves the web app. Nothing here is secret and nothing here knows who asks: data comes over the socket."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from app.web import static_dir

# 'self' covers ws and wss to our own host (CSP3). Markdown from an agent may name any picture: only ours are loaded,
# so that nobody learns from a request that, and where, an answer was read.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Only what DOMPurify has looked over can become HTML, whatever a mistake of ours would do.
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Asked about each time and answered 304 by content: after an update no page mixes old modules with new ones.
    "Cache-Control": "no-cache",
}
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    media_type: str
    etag: str


@router.api_route("/", methods=["GET", "HEAD"])
@router.api_route("/pair", methods=["GET", "HEAD"])
def page(request: Request) -> Response:
    return _answer(request, "index.html")


@router.api_route("/manifest.webmanifest", methods=["GET", "HEAD"])
def manifest(request: Request) -> Response:
    return _answer(request, "manifest.webmanifest")


@router.api_route("/favicon.ico", methods=["GET", "HEAD"])
def favicon(request: Request) -> Response:
    return _answer(request, "icons/talaria.svg")


@router.api_route("/static/{path:path}", methods=["GET", "HEAD"])
def static(request: Request, path: str) -> Response:
    return _answer(request, path)


def _answer(request: Request, path: str) -> Response:
    asset = _find(path)
    if asset is None:
        raise HTTPException(404)
    headers = {**HEADERS, "ETag": asset.etag}
    known = request.headers.get("if-none-match", "")
    if asset.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    body = b"" if request.method == "HEAD" else asset.body
    headers["Content-Length"] = str(len(asset.body))
    return Response(body, media_type=asset.media_type, headers=headers)


def _find(path: str) -> Asset | None:
    """None for what is not a file of ours, wherever the path leads."""
    root = static_dir().resolve()
    try:
        file = (root / path).resolve()
        changed = file.stat().st_mtime_ns
    except (OSError, ValueError):  # ValueError: a null byte
        return None
    if not file.is_relative_to(root) or not file.is_file():
        return None
    return _load(file, changed)


@lru_cache(maxsize=128)
def _load(file: Path, changed: int) -> Asset:
    """Held in memory; a file that changes on disk (a developer's) is read again."""
    body = file.read_bytes()
    media_type = MEDIA_TYPES.get(file.suffix, "application/octet-stream")
    return Asset(body, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
