"""Every compose file, alone and laid over the one that it is for, read by a real Compose."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from dotenv import dotenv_values
from ruamel.yaml import YAML
from websockets.asyncio.client import connect

from app.sessions.operator import LinkToken
from tests.link import Plugin, Spool
from tests.relay import running, settings_for
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
        [Path(sys.executable).with_name("podman-compose"), "--profile", "plugin", *named, "config"],
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
    # Newer images of Hermes listen on their own loopback unless they are told to.
    assert hermes["API_SERVER_HOST"] == hermes["HERMES_DASHBOARD_HOST"] == "0.0.0.0"
    assert hermes["HERMES_DASHBOARD_BASIC_AUTH_PASSWORD"] == relay["TALARIA_HERMES_DASHBOARD_PASSWORD"]
    assert relay["TALARIA_HERMES_ALLOW_PLAIN"] == "hermes"


def test_no_secret_of_env_is_handed_to_the_relay_that_is_not_for_it(stack: tuple[str, dict[str, Any]]) -> None:
    """`env_file` hands over all of it; `environment` counts after that."""
    named = set(re.findall(r"^#(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    secrets = {name for name in named if name.startswith("HERMES_") or name == "TS_AUTHKEY"}
    if stack[0] in ("host", "sidecar", "funnel"):
        secrets = {"TS_AUTHKEY"}
    assert secrets
    assert {name: stack[1]["relay"]["environment"].get(name) for name in secrets} == dict.fromkeys(secrets, "")


@pytest.mark.parametrize("left_out", SECRETS)
def test_a_secret_that_is_not_set_is_named(left_out: str) -> None:
    status, said = config("compose.hermes.yml", **{name: SECRETS[name] for name in SECRETS if name != left_out})
    assert status != 0
    assert left_out in said


@pytest.mark.parametrize("name", ["hermes", "hermes sidecar"])
async def test_the_plugin_gets_into_hermes_and_hermes_to_the_relay(name: str, tmp_path: Path) -> None:
    """What the file has `docker compose run plugin` do, with the home, the token and the relay in place of volumes."""
    status, said = config(*STACKS[name], **SECRETS)
    assert status == 0, said
    services = YAML(typ="safe").load(said)["services"]
    plugin, relay = services["plugin"], services["relay"]["environment"]
    assert plugin["volumes"] == services["hermes"]["volumes"]
    assert not {mount.split(":")[0] for mount in plugin["volumes"] + services["relay"]["volumes"]} - {"hermes", "relay"}
    assert plugin["environment"]["HERMES_HOME"] == plugin["volumes"][0].split(":")[1]
    assert relay["TALARIA_HOST"] == "0.0.0.0"

    (tmp_path / "config.yaml").touch()
    settings = settings_for(tmp_path / "data", ALLOWED_HOSTS=relay["TALARIA_ALLOWED_HOSTS"])
    async with running(settings) as here:
        token = LinkToken.load(tmp_path / "data").read()
        command = [*plugin["entrypoint"], *plugin["command"]]
        assert command.pop(0) == "talaria"
        install = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app", *command,
            cwd=tmp_path, env={"PATH": "", "HERMES_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, errors = await install.communicate(token.encode())
        assert install.returncode == 0, errors
        told = dotenv_values(tmp_path / ".env")
        url = urlsplit(str(told["TALARIA_LINK_URL"]))
        assert url.hostname == "relay"
        if name == "hermes sidecar":
            assert services["tailscale"]["networks"]["inside"]["aliases"] == ["relay"]
        port = int(here.url.rpartition(":")[2])
        dialled = connect(
            f"ws://{url.netloc}/agent/link", host="127.0.0.1", port=port, proxy=None,
            additional_headers={"Authorization": f"Bearer {told['TALARIA_LINK_TOKEN']}"},
        )  # fmt: skip
        async with dialled as socket:
            assert (await Plugin(socket, Spool()).hello())["type"] == "welcome"


def test_every_variable_of_the_relay_in_a_compose_file_is_a_setting() -> None:
    known = set(re.findall(r"TALARIA_[A-Z_]+", (ROOT / ".env.example").read_text()))
    for file in [*ROOT.glob("*compose*.yml"), *(ROOT / COMPOSE).glob("*.yml")]:
        used = set(re.findall(r"TALARIA_[A-Z_]+", file.read_text()))
        assert used <= known, f"{file.name} names {used - known}"
