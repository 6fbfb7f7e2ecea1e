"""The documentation says what the code does: messages, errors, close codes, settings, targets."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.channels.base import Channel
from app.settings import describe_settings
from app.wire import close
from deploy import tables
from tests.relay import RunningRelay

ROOT = Path(__file__).parents[1]
PROTOCOL = (ROOT / "deploy/protocol.md").read_text()
MESSAGE = re.compile(r"^\| (\w+) \| `([\w.]+)` \| ([→←]) \|", re.MULTILINE)
ROUTE = re.compile(r"^\| `([A-Z]+) (/[^`]*)` \|", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)")
PROSE = ["README.md", "CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "deploy").rglob("*.md"))]

Message = tuple[str, str]


@pytest.fixture(scope="module")
def everything() -> None:
    """Every module is imported, so that what registers itself has done so."""
    tables.import_everything()


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_generated_tables_are_fresh(page: Path) -> None:
    assert page.read_text() == tables.rendered(page.read_text()), "run: python -m deploy.tables"


@pytest.mark.usefixtures("everything")
def test_every_message_a_device_may_send_is_documented() -> None:
    received = {(channel.name, type_) for channel in _channels(Channel) for type_ in channel.types()}
    assert _documented("→") == received | {("system", "auth")}  # auth belongs to the link


def test_every_message_the_relay_sends_is_documented() -> None:
    undocumented = set(_sent()) - _documented("←")
    assert not undocumented


def test_no_documented_message_is_invented() -> None:
    strings = {text for file in _sources() for text in _strings(file)}
    assert {type_ for _, type_ in _documented("←")} <= strings


async def test_every_route_is_documented(relay: RunningRelay) -> None:
    async with httpx.AsyncClient() as http:
        paths = (await http.get(f"{relay.url}/openapi.json")).json()["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert set(ROUTE.findall(PROTOCOL)) == {route for route in served if route[0] != "HEAD"}


def test_close_codes_are_documented() -> None:
    defined = {value for name, value in vars(close).items() if name.isupper()}
    section = PROTOCOL.split("## Closing")[1].split("## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d{4}) \|", section, re.MULTILINE)} == defined


def test_the_example_environment_names_every_setting_and_no_other() -> None:
    named = set(re.findall(r"^#?(TALARIA_\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert named == {setting.name for setting in describe_settings({}, Path("/nonexistent/.env"))}


@pytest.mark.parametrize("page", PROSE)
def test_links_between_files_lead_somewhere(page: str) -> None:
    path = ROOT / page
    broken = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_targets_that_are_named_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z]+)", (ROOT / page).read_text())) <= targets


THREATS = [
    row for row in (ROOT / "deploy/security.md").read_text().partition("\n## Threats\n")[2].splitlines()
    if row.startswith("| ") and not row.startswith("| threat |")
]  # fmt: skip


@pytest.mark.parametrize("row", THREATS, ids=lambda row: row.split("|")[1].strip())
def test_each_threat_names_tests_that_exist(row: str) -> None:
    proofs = row.split("|")[3].split()
    assert proofs
    assert all(re.fullmatch(r"`tests/[\w/]+\.py::test_\w+`", proof) for proof in proofs), proofs
    named = [proof.strip("`").split("::") for proof in proofs]
    missing = [f"{path}::{name}" for path, name in named if name not in _tests(path)]
    assert missing == []


def _documented(direction: str) -> set[Message]:
    return {(channel, type_) for channel, type_, way in MESSAGE.findall(PROTOCOL) if way == direction}


def _channels(cls: type[Channel]) -> Iterator[type[Channel]]:
    for sub in cls.__subclasses__():
        if sub.__module__.startswith("app."):
            yield sub
        yield from _channels(sub)


def _sources() -> Iterator[ast.Module]:
    return (ast.parse(file.read_text()) for file in (ROOT / "app").rglob("*.py"))


@functools.cache
def _tests(path: str) -> frozenset[str]:
    """Names of the tests in a file; none if there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in functions if node.name.startswith("test_"))


def _strings(tree: ast.Module) -> Iterator[str]:
    return (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def _sent() -> Iterator[Message]:
    """Calls of `encode("channel", "type", …)` with both names spelled out."""
    for tree in _sources():
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Name("encode"), [ast.Constant(str(channel)), ast.Constant(str(type_)), *_]):
                    yield channel, type_
