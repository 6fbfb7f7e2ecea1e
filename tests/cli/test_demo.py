"""The demo: everything real but the agent."""

from __future__ import annotations

import signal
import socket

from app.demo import texts

from .conftest import Talaria


def test_it_talks_to_itself_and_ends(talaria: Talaria) -> None:
    done = talaria.run("demo", "--once", "--ask", "SAY:Hello out there", PORT="0")
    first, question, who, answer, last = done.stdout.splitlines()
    assert first.startswith("[paired in ")
    assert question == "you>     SAY:Hello out there"
    assert (who, answer) == ("hermes>", "Hello out there")
    assert last.startswith("[completed, first words after ")
    assert done.stderr == ""


def test_it_thinks_and_asks_over_the_dashboard(talaria: Talaria) -> None:
    done = talaria.run("demo", "--once", "--ask", "Clean up the old logs", PORT="0")
    said = done.stdout.splitlines()
    assert "[thinks]" in said
    assert f"[asks: may it run `{texts.CLEAN_UP_COMMAND}`? yes, once]" in said
    assert texts.CLEANED_UP in said
    done = talaria.run("demo", "--once", "--ask", "Help me choose", PORT="0")
    assert f"[asks: {texts.COLOUR} Gold]" in done.stdout
    assert texts.chosen("Gold") in done.stdout


def test_an_answer_that_fails_is_status_1(talaria: Talaria) -> None:
    done = talaria.run("demo", "--once", "--ask", "fail", status=1, PORT="0")
    assert "[failed" in done.stdout


def test_it_invites_and_ends_with_ctrl_c(talaria: Talaria) -> None:
    with talaria.started("demo", PORT="0", HERMES_API_URL="http://127.0.0.1:1") as demo:
        talaria.url = demo.until("Talaria's demo listens on ").split(",")[0]
        code = demo.until("Code  ").split(",")[0]
        demo.until("Open the link and talk.")
        phone = talaria.redeem(code)
        assert phone["upstream"]["api"]["state"] in ("up", "unknown")
        assert demo.stop(signal.SIGINT) == 0
        assert "Traceback" not in demo.errors()
    assert not talaria.data.exists()
    assert list(talaria.home.iterdir()) == []


def test_it_keeps_its_data_where_told_and_moves_when_the_port_is_taken(talaria: Talaria) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with talaria.started("demo", "--data-dir", "kept", "--port", port) as demo:
            url = demo.until("Talaria's demo listens on ").split(",")[0]
            assert not url.endswith(f":{port}")
            demo.until("Open the link")
            demo.stop()
            assert f"Port {port} is taken; the demo takes a free one." in demo.errors()
    assert (talaria.home / "kept" / "talaria.db").exists()


def test_the_routes_in_use_are_shown_beside_the_settings(talaria: Talaria) -> None:
    with talaria.started("demo", "--data-dir", "kept", PORT="0") as demo:
        port = demo.until("Talaria's demo listens on ").split(",")[0].rpartition(":")[2]
        demo.until("Open the link")  # the dashboard is connected
        shown = talaria.run("config", DATA_DIR="kept", PORT=port)
        assert "In use now: TALARIA_HERMES_DASHBOARD_URL (local)" in shown.stderr
        assert "In use now" not in shown.stdout
        assert "In use now" not in talaria.run("config", "--json", DATA_DIR="kept", PORT=port).stderr
        demo.stop()
    assert "In use now" not in talaria.run("config", DATA_DIR="kept", PORT=port).stderr
