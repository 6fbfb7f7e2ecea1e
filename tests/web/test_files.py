"""The files themselves: libraries as npm has them, and nothing that the content policy would stop."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

from app.web import static_dir

STATIC = static_dir()
VENDOR = STATIC / "vendor"
OURS = sorted(file for file in STATIC.rglob("*.*") if VENDOR not in file.parents and file.suffix != ".png")
IMPORT = re.compile(r"""(?:^import|^export|^\}) .*?from "([^"]+)";""", re.MULTILINE)


def test_libraries_are_unmodified_and_licensed() -> None:
    listed = set()
    for line in (VENDOR / "VERSIONS").read_text().splitlines():
        package, path, expected = line.split()
        file = VENDOR / package.split("@")[0] / path.rsplit("/", 1)[-1]
        assert hashlib.sha256(file.read_bytes()).hexdigest() == expected, f"{file} was changed: deploy/vendor-web.sh"
        listed.add(file)
    assert listed == {file for file in VENDOR.rglob("*") if file.is_file()} - {VENDOR / "VERSIONS"}
    assert all((directory / "LICENSE").is_file() for directory in VENDOR.iterdir() if directory.is_dir())


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_nothing_of_another_origin_is_named(file: Path) -> None:
    text = file.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.findall(r"https?://[^\s`$]+|//cdn", text)


@pytest.mark.parametrize("file", [file for file in OURS if file.suffix in (".js", ".css")], ids=lambda file: file.name)
def test_no_file_grows_long(file: Path) -> None:
    assert file.read_text().count("\n") < 300, "what second thing lives there?"


def test_imports_lead_to_files() -> None:
    for file in STATIC.glob("js/**/*.js"):
        for target in IMPORT.findall(file.read_text()):
            assert target.startswith("."), f"{file.name}: {target} needs an import map, which would be inline"
            assert (file.parent / target).resolve().is_file(), f"{file.name}: {target}"


class _Inline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.linked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.linked += [value for name in ("src", "href") if (value := given.get(name))]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.found.append(tag)
        self.found += [name for name in given if name == "style" or name.startswith("on")]


def test_the_page_has_nothing_inline_and_links_to_files() -> None:
    page = _Inline()
    page.feed((STATIC / "index.html").read_text())
    manifest = orjson.loads((STATIC / "manifest.webmanifest").read_bytes())
    assert page.found == []
    for path in (*page.linked, *(icon["src"] for icon in manifest["icons"])):
        assert (STATIC / path.removeprefix("/static/").removeprefix("/")).is_file(), path
