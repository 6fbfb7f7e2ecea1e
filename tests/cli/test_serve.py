"""Starting and stopping the relay."""

from __future__ import annotations

import json
import signal
import socket
import time

import httpx
import pytest
from websockets.sync.client import connect

from .conftest import Talaria

KEY = "an-api-key-of-hermes-0123"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_ends_cleanly(talaria: Talaria, number: int) -> None:
    with talaria.started("serve", PORT="0", HERMES_API_URL="http://127.0.0.1:9", HERMES_API_KEY=KEY) as serving:
        talaria.url = serving.until("Talaria 0.1.0 listens on ")
        assert serving.until("  phones use  ") == "no public URL"
        assert serving.until("  Hermes API  ") == "at TALARIA_HERMES_API_URL"
        assert serving.until("  dashboard   ") == "at TALARIA_HERMES_DASHBOARD_URL"
        assert serving.until("  data        ") == str(talaria.data)
        assert talaria.status_of("nobody", "/livez") == 200
        assert serving.stop(number) == 0, serving.errors()
        operator = (talaria.data / "operator-token").read_text().strip()
        for secret in (KEY, operator, operator[11:]):
            assert secret not in serving.said + serving.errors()
        assert "Traceback" not in serving.errors()
    assert not list(talaria.data.glob("*-wal")), "the database was not closed"


def test_it_warns_of_what_is_most_often_a_mistake(talaria: Talaria) -> None:
    with talaria.started("serve", PORT="0", TRUST_LOOPBACK="1", HERMES_KEY="x", LOG_FORMAT="json") as serving:
        serving.until("Talaria")
        serving.stop()
        said = " ".join(serving.errors().split())
    assert "TALARIA_HERMES_KEY is no setting of Talaria" in said
    assert "TALARIA_TRUST_LOOPBACK=1: every program on this machine" in said
    assert "TALARIA_PUBLIC_URL is not set: only this machine" in said


def test_a_wrong_setting_is_one_line_and_status_2(talaria: Talaria) -> None:
    done = talaria.run("serve", status=2, PORT="many", PUBLIC_URL="home")
    assert done.stdout == ""
    assert " ".join(done.stderr.split()).startswith("talaria: TALARIA_PORT: Input should be a valid integer")
    assert "TALARIA_PUBLIC_URL: it must look like https://name[:port]" in " ".join(done.stderr.split())
    assert not talaria.data.exists()


def test_a_taken_port_is_named(talaria: Talaria) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = talaria.run("serve", status=2, PORT=str(port), PUBLIC_URL="https://home.example")
    said = " ".join(done.stderr.split())
    assert said.startswith(f"talaria: cannot listen on 127.0.0.1:{port}: Address already in use. Another relay runs")


def test_what_is_most_often_a_mistake_is_warned_of(talaria: Talaria) -> None:
    with talaria.started("serve", PORT="0", PUBLIC_URL="http://home.example", SSH_HOST="there") as serving:
        serving.until("Talaria 0.1.0 listens on ")
        said = " ".join(serving.errors().split())
    assert "TALARIA_PUBLIC_URL is not https" in said
    assert "TALARIA_SSH_HOST is set, but shells run on this host" in said


def test_a_setting_that_is_spelled_wrong_in_the_env_file_is_named(talaria: Talaria) -> None:
    (talaria.home / ".env").write_text("TALARIA_PRT=1\n")
    done = talaria.run("serve", status=2, PAIRING_CONFIRM="maybe")
    assert "TALARIA_PAIRING_CONFIRM: it must be 1 or 0" in done.stderr
    assert "TALARIA_PRT is no setting" in talaria.run("config").stderr


def test_an_env_file_with_a_line_that_is_none_is_refused(talaria: Talaria) -> None:
    (talaria.home / ".env").write_text('TALARIA_PORT=1\nno setting\nTALARIA_HERMES_API_KEY="open\n')
    said = " ".join(talaria.run("serve", status=2).stderr.split())
    assert said == f"talaria: {talaria.home}/.env: line 2, 3 cannot be read: it must be NAME=value, with quotes closed"


def test_a_data_directory_that_cannot_be_one_is_named(talaria: Talaria) -> None:
    talaria.data.write_text("")
    done = talaria.run("serve", status=2, PORT="0")
    assert "Traceback" not in done.stderr
    assert f"the data directory {talaria.data} cannot be made" in " ".join(done.stderr.split())


def test_what_callers_send_does_not_reach_its_log(talaria: Talaria) -> None:
    secret = "hunter2-Zq81"
    with talaria.started("serve", PORT="0", LOG_LEVEL="debug") as serving:
        url = serving.until("Talaria 0.1.0 listens on ")
        headers = {"Authorization": f"Bearer {secret}", "Cookie": f"sid={secret}", "X-Hermes-Session-Token": secret}
        with httpx.Client(base_url=url, headers=headers, trust_env=False) as caller:
            for path in (f"/session?token={secret}", f"/nothing/{secret}?code={secret}", f"/devices?api_key={secret}"):
                assert caller.get(path).status_code in (401, 404)
            assert caller.get("/health", headers={"Host": f"me:{secret}@elsewhere"}).status_code == 421
            assert caller.post("/pairing/redeem", json={"pairing_code": "QZXW1234"}).status_code == 401
            assert caller.post("/pairing/mint", content=f'{{"code": "{secret}'.encode()).status_code == 401
            assert caller.get("/ws", headers={"Upgrade": "websocket"}).status_code < 500
        with connect(url.replace("http", "ws") + f"/ws?token={secret}", additional_headers=headers) as socket:
            socket.send(json.dumps({"channel": "system", "type": "auth", "payload": {"session_token": secret}}))
            assert "auth.fail" in str(socket.recv())
        serving.stop()
        assert "[uvicorn.error]" in serving.errors()
        assert secret not in serving.errors()
        assert "QZXW1234" not in serving.errors()


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_where_hermes_is_reaches_neither_its_log_nor_callers(talaria: Talaria, scheme: str) -> None:
    """Names that lead nowhere, in each setting; over http also one that may not get the key."""
    settings = {
        f"HERMES_{which}URL": f"{scheme}://{name}.where-hermes-is.invalid:8642"
        for which, name in (
            ("API_", "a"), ("API_REMOTE_", "b"), ("DASHBOARD_", "c"), ("DASHBOARD_REMOTE_", "d"),
        )
    }  # fmt: skip
    settings |= {"HERMES_API_KEY": KEY, "HERMES_DASHBOARD_TOKEN": KEY}
    talaria.settings |= settings
    with talaria.started("serve", PORT="0", LOG_LEVEL="debug", LOG_FORMAT="json") as serving:
        url = serving.until("Talaria 0.1.0 listens on ")
        while serving.errors().count("hermes is") < 2:
            time.sleep(0.05)  # a process: there is nothing to wait on
        said = httpx.get(f"{url}/readyz", trust_env=False).text
        serving.stop()
        told = said + serving.said + serving.errors()
    assert "TALARIA_HERMES_API" in said
    assert "TALARIA_HERMES_DASHBOARD" in said
    assert "where-hermes-is" not in told
