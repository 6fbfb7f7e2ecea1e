"""What a file is: by its first bytes where it says it is a picture, else by what was said of it or its name."""

from __future__ import annotations

import mimetypes
import re

HEAD = 32  # bytes that decide
UNKNOWN = "application/octet-stream"

_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}(; ?charset=[a-z0-9_-]{1,40})?")
_STARTS = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif",
    b"II*\x00": "image/tiff", b"MM\x00*": "image/tiff",
}  # fmt: skip
_BRANDS = {
    b"avif": "image/avif", b"avis": "image/avif", b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heif",
}  # fmt: skip

# The tables that Python brings, not those of the host, and what they lack of what phones and agents make.
_by_name = mimetypes.MimeTypes()
for _type, _suffix in (
    ("audio/flac", ".flac"), ("audio/mp4", ".m4a"), ("audio/ogg", ".ogg"), ("audio/ogg", ".oga"),
    ("image/avif", ".avif"), ("image/heic", ".heic"), ("image/webp", ".webp"), ("video/x-matroska", ".mkv"),
    ("text/markdown", ".md"),
):  # fmt: skip
    _by_name.add_type(_type, _suffix)


def picture_type(head: bytes) -> str | None:
    """None for what begins like no picture. SVG is none: it is a document, and may hold a script."""
    for start, found in _STARTS.items():
        if head.startswith(start):
            return found
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[:2] == b"BM" and head[6:10] == bytes(4):
        return "image/bmp"
    return _BRANDS.get(head[8:12]) if head[4:8] == b"ftyp" else None


def declared(content_type: str | None, name: str) -> str:
    """What is said of a file: its type, else that of its name."""
    said = (content_type or "").strip().lower()
    if not _TYPE.fullmatch(said) or said == UNKNOWN:
        said = _by_name.guess_type(name, strict=False)[0] or UNKNOWN
    return said


def media_type(said: str, head: bytes) -> str:
    """The type to serve a file as. What claims to be a picture or a PDF and does not begin like one is unknown."""
    if said.startswith("image/") or said == UNKNOWN:
        return picture_type(head) or UNKNOWN
    if said == "application/pdf" and not head.startswith(b"%PDF-"):
        return UNKNOWN
    return said


def is_shown(media_type: str) -> bool:
    """Whether a browser may show it in place; everything else is for saving."""
    return media_type.startswith(("image/", "audio/", "video/")) or media_type == "application/pdf"
