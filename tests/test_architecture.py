"""Who may import whom, where a library may appear, and what only one place may do. Read the tables; the rest is how."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

APP = Path(__file__).parents[1] / "app"

# A package imports only from lines below its own. Packages on one line do not import each other.
LAYERS = """
    __main__
    cli
    demo
    server
    main
    api mcp web
    bootstrap
    gateway
    channels
    turns threads terminal media doctor backup bridge
    approvals
    hermes pairing push delivery
    outbox sessions once
    audit
    wire db settings logs tasks guard data_dir container
    metrics
    errors clock
    __init__
"""

# Where a library may be imported: paths in app/, without .py. A library that is not listed may not be imported at all.
VENDORS = {
    "alembic": "db/* doctor/host",
    "asyncssh": "terminal/ssh*",
    "cryptography": "sessions/* push/* api/* doctor/*",
    "dotenv": "settings/*",
    "fastapi": "main api/* mcp/* web/* demo/*",
    "httpcore": "guard",
    "httpx": "guard hermes/* push/* cli/* doctor/* bootstrap",
    "jsonschema": "mcp/*",
    "httptools": "hermes/stream hermes/passing/connection",
    "jwt": "sessions/tokens",
    "mcp": "mcp/*",
    "mcp_types": "mcp/*",
    "orjson": "*",
    "prometheus_client": "metrics",
    "pydantic": "*",
    "pydantic_core": "*",
    "python_multipart": "api/multipart",
    "qrcode": "pairing/qr",
    "redis": "delivery/redis_fanout",
    "rich": "cli/*",
    "ruamel": "cli/hermes_files",
    "sqlalchemy": "db/* outbox/* */store",
    "sse_starlette": "mcp/*",
    "starlette": "main api/* mcp/* web/* demo/*",
    "structlog": "logs/*",
    "typer": "cli/*",
    "uvicorn": "server/* demo/*",
    "uvloop": "server/* demo/*",
    "websockets": "hermes/* server/* demo/*",
}

# What only one place may name, by its full name (`loop` stands for whatever ends in it), and who has it instead.
RESERVED = {
    "asyncio.create_task": ("tasks", "app.tasks.Supervisor owns tasks"),
    "asyncio.ensure_future": ("tasks", "app.tasks.Supervisor owns tasks"),
    "loop.create_task": ("tasks", "app.tasks.Supervisor owns tasks"),
    "os.environ": ("settings/*", "app.settings reads the environment"),
    "os.getenv": ("settings/*", "app.settings reads the environment"),
    "print": ("cli/* demo/*", "the service logs"),
    "time.time": ("clock", "app.clock.Clock is injected"),
    "time.time_ns": ("clock", "app.clock.Clock is injected"),
    "time.monotonic": ("clock", "app.clock.Clock is injected"),
    "datetime.datetime.now": ("clock", "app.clock.Clock is injected"),
    "datetime.datetime.utcnow": ("clock", "app.clock.Clock is injected"),
    "datetime.datetime.today": ("clock", "app.clock.Clock is injected"),
    "datetime.date.today": ("clock", "app.clock.Clock is injected"),
}

# The protocol does no I/O and reads no clock.
FORBIDDEN_IN_WIRE = {"asyncio", "http", "os", "selectors", "socket", "ssl", "subprocess", "threading", "time"}

MAX_LINES = 400

RANK = {package: rank for rank, line in enumerate(LAYERS.strip().splitlines()) for package in line.split()}


def test_the_code_keeps_the_rules() -> None:
    assert list(violations(APP)) == []


@pytest.mark.parametrize(
    ("path", "code", "complaint"),
    [
        ("errors.py", "import app.clock", "errors may not import clock"),
        ("turns/runner.py", "from app.channels.base import Channel", "turns may not import channels"),
        ("turns/runner.py", "from app.threads import store", "turns may not import threads"),
        ("turns/runner.py", "from app import gateway", "turns may not import gateway"),
        ("turns/runner.py", "from ..gateway import reader", "turns may not import gateway"),
        ("turns/runner.py", "def f() -> None:\n    import app.main", "turns may not import main"),
        ("util/text.py", "", "util is in no layer"),
        ("turns/runner.py", "import app.util", "turns may not import util"),
        ("turns/service.py", "import sqlalchemy", "sqlalchemy may not be imported here"),
        ("sessions/service.py", "from jwt import decode", "jwt may not be imported here"),
        ("turns/runner.py", "import requests", "requests may not be imported here"),
        ("wire/link.py", "import asyncio", "the protocol may not use asyncio"),
        ("turns/runner.py", "import asyncio\nasyncio.create_task(f())", "asyncio.create_task: app.tasks"),
        ("turns/runner.py", "from asyncio import create_task as go", "asyncio.create_task: app.tasks"),
        ("turns/runner.py", "import asyncio as a\na.ensure_future(f())", "asyncio.ensure_future: app.tasks"),
        ("turns/runner.py", "self._loop.create_task(f())", "loop.create_task: app.tasks"),
        ("turns/runner.py", "asyncio.get_running_loop().create_task(f())", "loop.create_task: app.tasks"),
        ("cli/main.py", "import os\nos.environ['HOME']", "os.environ: app.settings"),
        ("cli/main.py", "from os import getenv", "os.getenv: app.settings"),
        ("turns/runner.py", "print('x')", "print: the service logs"),
        ("turns/runner.py", "import time\ntime.time()", "time.time: app.clock"),
        ("turns/runner.py", "from time import monotonic", "time.monotonic: app.clock"),
        ("turns/runner.py", "from datetime import datetime\ndatetime.now()", "datetime.datetime.now: app.clock"),
        ("turns/runner.py", "import datetime as d\nd.date.today()", "datetime.date.today: app.clock"),
        ("turns/runner.py", "x = 1\n" * (MAX_LINES + 1), "has 401 lines"),
    ],
)
def test_an_offender_is_named(tmp_path: Path, path: str, code: str, complaint: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    (found,) = violations(tmp_path)
    assert found.startswith(path)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("main.py", "import fastapi\nfrom app.api import ws\nfrom app import __version__"),
        ("outbox/store.py", "from sqlalchemy import text\nfrom app.outbox import other"),
        ("turns/runner.py", "async with asyncio.TaskGroup() as group:\n    group.create_task(f())"),
        ("turns/runner.py", "import time\ntime.perf_counter()"),
        ("tasks.py", "import asyncio\nasyncio.get_running_loop().create_task(f())"),
        ("clock.py", "import time\ntime.time()"),
        ("settings/loading.py", "import os\nos.environ"),
        ("demo/hermes.py", "import uvicorn\nprint('x')"),
    ],
)
def test_the_allowed_is_allowed(tmp_path: Path, path: str, code: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    assert list(violations(tmp_path)) == []


def violations(root: Path) -> Iterator[str]:
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        source = file.read_text()
        if (lines := source.count("\n")) > MAX_LINES:
            yield f"{path} has {lines} lines, more than {MAX_LINES}: what second thing lives there?"
        package = path.parts[0].removesuffix(".py")
        if package not in RANK:
            yield f"{path}: {package} is in no layer"
            continue
        tree = ast.parse(source)
        imports = {(line, name) for line, name in _imported(tree, path)}
        for line, name in sorted(imports):
            if complaint := _import_complaint(path, package, name):
                yield f"{path}:{line}: {complaint}"
        for line, name in sorted({*_named(tree), *imports}):
            places, instead = RESERVED.get(name, ("*", ""))
            if not _is_in(path, places):
                yield f"{path}:{line}: {name}: {instead}"


def _import_complaint(path: Path, package: str, name: str) -> str | None:
    first, _, rest = name.partition(".")
    if first == "app":
        target = rest.partition(".")[0]
        allowed = target in ("", "__version__", package) or RANK.get(target, -1) > RANK[package]
        return None if allowed else f"{package} may not import {target}"
    if package == "wire" and first in FORBIDDEN_IN_WIRE:
        return f"the protocol may not use {first}"
    if first in sys.stdlib_module_names or _is_in(path, VENDORS.get(first, "")):
        return None
    return f"{first} may not be imported here"


def _is_in(path: Path, places: str) -> bool:
    return any(fnmatch(str(path.with_suffix("")), place) for place in places.split())


def _imported(tree: ast.Module, path: Path) -> Iterator[tuple[int, str]]:
    """Full dotted names; `from a import b` gives a.b, since b may be a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ("app", *path.parts)[: -node.level] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Dotted names as used, with local names of imports spelled out. Any receiver that ends in `loop` is `loop`."""
    spelled: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            spelled |= {alias.asname: base + alias.name for alias in node.names if alias.asname}
            spelled |= {alias.name: base + alias.name for alias in node.names if base and not alias.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.lineno, spelled.get(node.id, node.id)
        elif isinstance(node, ast.Attribute):
            receiver = ast.unparse(node.value)
            first, dot, rest = receiver.partition(".")
            is_loop = receiver.removesuffix("()").endswith("loop")
            yield node.lineno, ("loop" if is_loop else spelled.get(first, first) + dot + rest) + f".{node.attr}"
