"""The plugin fits Hermes 0.19, 0.20 and 0.22: the interface of 0.19 as its own `inspect` tells it, what the later ones
add, and every form of a call that was recorded on any of the three."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hermes_plugin import hermes_stub
from tests.requires import requires

RECORD = json.loads((Path(__file__).parent / "interface.json").read_text())
OLDEST = RECORD["interface"]["0.19"]
CALLS = [(version, call) for version, calls in RECORD["calls"].items() for call in calls]
FROM_BASE = ["handle_message", "build_source", "resume_typing_for_chat", "_mark_connected", "_mark_disconnected"]


@pytest.fixture
def adapter_class(home: Path) -> Any:
    return importlib.import_module("deploy.hermes_plugin.adapter").TalariaAdapter


def overridden(adapter_class: Any) -> list[str]:
    return [name for name in OLDEST["methods"] if name in vars(adapter_class)]


@pytest.mark.parametrize(("version", "call"), CALLS, ids=lambda one: one if isinstance(one, str) else one["call"])
def test_every_recorded_call_is_taken(adapter_class: Any, version: str, call: dict[str, Any]) -> None:
    signature = inspect.signature(getattr(adapter_class, call["call"]))
    signature.bind(None, *["x"] * call["positional"], **dict.fromkeys(call["named"], "x"))


def test_every_method_is_taken_as_0_19_declares_it(adapter_class: Any) -> None:
    assert set(OLDEST["abstract"]) <= set(vars(adapter_class))
    names = overridden(adapter_class)
    assert {"send", "edit_message", "send_clarify", "send_slash_confirm", "send_voice", "stop_typing"} <= set(names)
    for name in names:
        signature = inspect.signature(getattr(adapter_class, name))
        declared = [one for one in OLDEST["methods"][name] if not one["kind"].startswith("VAR_")]
        required = [one for one in declared if one["required"]]
        signature.bind(*[None] * len(required))  # as few as may be
        positional = [one for one in declared if one["kind"] != "KEYWORD_ONLY"]
        signature.bind(*[None] * len(positional))  # all in order
        signature.bind(None, **{one["name"]: None for one in declared[1:]})  # all by name
        mine = list(signature.parameters)
        assert mine[: len(positional)] == [one["name"] for one in positional] or not positional[1:]


def test_what_a_later_version_adds_is_taken(adapter_class: Any) -> None:
    hooks = ("on_processing_start", "on_processing_complete", "get_chat_info", "disconnect")
    for name in [*overridden(adapter_class), "send_exec_approval", "send_or_update_status"]:
        kinds = [one.kind for one in inspect.signature(getattr(adapter_class, name)).parameters.values()]
        assert inspect.Parameter.VAR_KEYWORD in kinds or name in hooks, name
    for probe in RECORD["added"]["0.22"]["probes"]:
        assert inspect.ismethod(getattr(adapter_class, probe))
        assert getattr(adapter_class, probe)() is True


def test_what_the_plugin_uses_of_hermes_is_there(adapter_class: Any) -> None:
    assert set(FROM_BASE) <= set(OLDEST["methods"])
    stub = {name for name, _ in inspect.getmembers(hermes_stub.MessageEvent) if not name.startswith("_")}
    assert {name for name in stub if name in hermes_stub.MessageEvent.__dataclass_fields__} <= set(
        OLDEST["MessageEvent"]
    )
    assert set(hermes_stub.SendResult.__dataclass_fields__) <= set(OLDEST["SendResult"])
    assert {one.name for one in hermes_stub.MessageType} <= set(OLDEST["MessageType"])
    for name, declared in OLDEST["functions"].items():
        stand_in = getattr(hermes_stub.Asks, name.rpartition(".")[2], None)
        if stand_in is not None:
            mine = list(inspect.signature(stand_in).parameters)[1:]
            assert mine == [one["name"] for one in declared][: len(mine)], name


@pytest.mark.parametrize("version", ["0.19", "0.20", "0.22"])
def test_registration_names_only_what_the_version_knows(
    home: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = [*OLDEST["PlatformEntry"], *RECORD["added"].get(version, {}).get("PlatformEntry", [])]
    registry = sys.modules["gateway.platform_registry"]
    monkeypatch.setattr(registry, "PlatformEntry", dataclasses.make_dataclass("PlatformEntry", fields))
    given: dict[str, Any] = {}
    importlib.import_module("deploy.hermes_plugin").register(
        SimpleNamespace(register_platform=lambda **kw: given.update(kw))
    )
    assert set(given) <= set(fields)
    assert ("parse_target_ref_fn" in given) == (version != "0.19")
    assert given["name"] == "talaria"
    assert given["check_fn"]() is True


@pytest.mark.parametrize(
    ("reference", "chat"),
    [
        ("home", ("home", None)),
        ("home:plans", ("home", "plans")),
        ("device:abc", ("device:abc", None)),
        ("device:abc:plans", ("device:abc", "plans")),
        (" ", None),
    ],
)
def test_a_target_names_chat_and_thread(reference: str, chat: tuple[str, str | None] | None) -> None:
    assert importlib.import_module("deploy.hermes_plugin.config").parse_target(reference) == chat


@pytest.mark.hermes
def test_the_record_is_what_hermes_says(tmp_path: Path) -> None:
    python = requires("hermes") / "venv" / "bin" / "python"
    script = Path(__file__).with_name("record_interface.py")
    done = subprocess.run(
        [python, script], env={"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert json.loads(done.stdout) == OLDEST
