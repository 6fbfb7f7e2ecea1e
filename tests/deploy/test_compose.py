"""Every compose file, alone and laid over the one that it is for, read by a real Compose."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.requires import requires

ROOT = Path(__file__).parents[2]
COMPOSE = Path("deploy/compose")
SECRETS = {"HERMES_API_SERVER_KEY": "k" * 32, "HERMES_DASHBOARD_PASSWORD": "p", "HERMES_DASHBOARD_SECRET": "s"}
STACKS: dict[str, list[str | Path]] = {
    "host": ["docker-compose.yml"],
    "sidecar": ["docker-compose.yml", COMPOSE / "tailscale.yml"],
    "funnel": ["docker-compose.yml", COMPOSE / "tailscale.yml", COMPOSE / "tailscale-funnel.yml"],
    "hermes": ["compose.hermes.yml"],
    "hermes sidecar": ["compose.hermes.yml", COMPOSE / "tailscale-hermes.yml"],
    "hermes funnel": ["compose.hermes.yml", COMPOSE / "tailscale-hermes.yml", COMPOSE / "tailscale-funnel.yml"],
}


def config(*files: str | Path, **environ: str) -> tuple[int, str]:
    """Status and output of `compose config`."""
    requires("podman")
    named = [part for file in files for part in ("-f", str(file))]
    done = subprocess.run(
        [Path(sys.executable).with_name("podman-compose"), *named, "config"],
        cwd=ROOT, env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/root")} | environ,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module", params=STACKS)
def stack(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    status, said = config(*STACKS[request.param], **SECRETS)
    assert status == 0, said
    found: dict[str, Any] = YAML(typ="safe").load(said)
    return request.param, found["services"]


def test_the_relay_is_locked_down_and_comes_back_in_every_one(stack: tuple[str, dict[str, Any]]) -> None:
    relay = stack[1]["relay"]
    assert relay["read_only"] is True
    assert relay["cap_drop"] == ["ALL"]
    assert relay["security_opt"] == ["no-new-privileges:true"]
    assert relay["restart"] == "unless-stopped"
    assert not relay["user"].startswith("0")


def test_nothing_is_open_beyond_the_loopback_of_the_host(stack: tuple[str, dict[str, Any]]) -> None:
    name, services = stack
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports == (["127.0.0.1:8767:8767"] if name == "hermes" else [])


def test_with_a_sidecar_the_relay_has_its_network_and_only_the_funnel_file_opens_it(
    stack: tuple[str, dict[str, Any]],
) -> None:
    name, services = stack
    if "tailscale" not in services:
        assert name in ("host", "hermes")
        return
    assert services["relay"]["network_mode"] == "service:tailscale"
    assert "networks" not in services["relay"]
    serve = services["tailscale"]["environment"]["TS_SERVE_CONFIG"]
    mounts = dict(mount.split(":")[1::-1] for mount in services["tailscale"]["volumes"])
    assert ("AllowFunnel" in (ROOT / mounts[serve]).read_text()) == ("funnel" in name)


def test_relay_and_hermes_have_no_volume_in_common() -> None:
    status, said = config("compose.hermes.yml", **SECRETS)
    assert status == 0, said
    services = YAML(typ="safe").load(said)["services"]
    volumes = {name: {mount.split(":")[0] for mount in service["volumes"]} for name, service in services.items()}
    assert not volumes["relay"] & volumes["hermes"]
    hermes, relay = services["hermes"]["environment"], services["relay"]["environment"]
    assert hermes["API_SERVER_KEY"] == relay["TALARIA_HERMES_API_KEY"] == SECRETS["HERMES_API_SERVER_KEY"]
    assert hermes["HERMES_DASHBOARD_BASIC_AUTH_PASSWORD"] == relay["TALARIA_HERMES_DASHBOARD_PASSWORD"]
    assert relay["TALARIA_HERMES_ALLOW_PLAIN"] == "hermes"


@pytest.mark.parametrize("left_out", SECRETS)
def test_a_secret_that_is_not_set_is_named(left_out: str) -> None:
    status, said = config("compose.hermes.yml", **{name: SECRETS[name] for name in SECRETS if name != left_out})
    assert status != 0
    assert left_out in said


def test_every_variable_of_the_relay_in_a_compose_file_is_a_setting() -> None:
    known = set(re.findall(r"TALARIA_[A-Z_]+", (ROOT / ".env.example").read_text()))
    for file in [*ROOT.glob("*compose*.yml"), *(ROOT / COMPOSE).glob("*.yml")]:
        used = set(re.findall(r"TALARIA_[A-Z_]+", file.read_text()))
        assert used <= known, f"{file.name} names {used - known}"
