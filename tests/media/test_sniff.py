from __future__ import annotations

import pytest

from app.media.names import MAX_NAME, clean_name
from app.media.sniff import UNKNOWN, declared, is_shown, media_type

PNG, JPEG, HTML = b"\x89PNG\r\n\x1a\n....", b"\xff\xd8\xff\xe0....", b"<html><script>"


@pytest.mark.parametrize(
    ("content_type", "name", "head", "served"),
    [
        ("image/png", "a.png", PNG, "image/png"),
        ("image/jpeg", "a.jpg", PNG, "image/png"),
        ("image/png", "a.png", HTML, UNKNOWN),
        (None, "a.png", HTML, UNKNOWN),
        (None, "a.jpeg", JPEG, "image/jpeg"),
        ("application/octet-stream", "a.png", PNG, "image/png"),
        ("application/octet-stream", "a", PNG, "image/png"),
        ("image/svg+xml", "a.svg", b"<svg onload=", UNKNOWN),
        ("image/webp", "a", b"RIFF\x10\x00\x00\x00WEBPVP8 ", "image/webp"),
        ("image/webp", "a", b"RIFF\x10\x00\x00\x00WAVEfmt ", UNKNOWN),
        ("image/gif", "a", b"GIF89a....", "image/gif"),
        ("image/heic", "a", b"\x00\x00\x00\x18ftypheic", "image/heic"),
        ("image/avif", "a", b"\x00\x00\x00\x18ftypavif", "image/avif"),
        ("image/bmp", "a", b"BM\x10\x10\x10\x10\x00\x00\x00\x00", "image/bmp"),
        ("image/bmp", "a", b"BM<script>alert", UNKNOWN),
        ("application/pdf", "a.pdf", b"%PDF-1.7", "application/pdf"),
        ("application/pdf", "a.pdf", HTML, UNKNOWN),
        ("text/html", "a.html", HTML, "text/html"),
        ("text/plain; charset=utf-8", "a", b"x", "text/plain; charset=utf-8"),
        ("TEXT/Plain", "a", b"x", "text/plain"),
        ("text/plain\r\nX-Evil: 1", "a.bin", b"x", UNKNOWN),
        ("nonsense", "a.txt", b"x", "text/plain"),
        (None, "voice.ogg", b"OggS", "audio/ogg"),
        (None, "film.mp4", b"\x00\x00\x00\x18ftypisom", "video/mp4"),
        (None, "unheard.of", b"", UNKNOWN),
        (None, "", b"", UNKNOWN),
    ],
)
def test_what_a_file_is_served_as(content_type: str | None, name: str, head: bytes, served: str) -> None:
    assert media_type(declared(content_type, name), head) == served


def test_only_what_runs_nothing_is_shown_in_place() -> None:
    assert all(map(is_shown, ("image/png", "audio/ogg", "video/mp4", "application/pdf")))
    assert not any(map(is_shown, ("text/html", "text/plain", UNKNOWN, "application/xhtml+xml")))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a.png", "a.png"),
        ("/etc/passwd", "passwd"),
        ("C:\\Users\\me\\cat.jpg", "cat.jpg"),
        ("..", ""),
        ("a/..", ""),
        ("a\r\nX: y.png", "aX: y.png"),
        ("photo\u202egpj.exe", "photogpj.exe"),
        ("Ärger 漢字.png", "Ärger 漢字.png"),
        ("\ud800x", "x"),
        ("x" * 300 + ".jpeg", "x" * (MAX_NAME - 5) + ".jpeg"),
        ("x" * 300, "x" * MAX_NAME),
    ],
)
def test_a_name_is_one_name_and_shows_what_it_is(given: str, kept: str) -> None:
    assert clean_name(given) == kept
