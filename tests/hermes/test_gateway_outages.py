"""What becomes of a conversation over the messaging gateway when the gateway or the relay goes away in mid-turn."""

from __future__ import annotations

import pytest

from tests.hermes.gateway_lab import GatewayLab, Owner
from tests.phone import Frame

pytestmark = pytest.mark.hermes

SLOW = "WORDS:400"  # at 15 ms each: six seconds of streaming
MANY = 200


async def until_half_written(owner: Owner) -> str:
    """Returns the id of the message that is being written."""
    frame = await owner.until("message.update")
    return str(frame.payload["message_id"])


async def test_a_relay_that_is_killed_in_mid_turn_loses_nothing(gateway: GatewayLab, owner: Owner) -> None:
    sent = await owner.says(SLOW)
    half = await until_half_written(owner)
    gateway.kill_relay()
    gateway.begin_relay()
    await gateway.linked()
    async with gateway.phone(session_token=owner.phone.token) as back:
        answer = await back.hears(lambda frame: frame.payload.get("reply_to") == sent)
        assert answer.payload["message_id"] == half
        assert answer.payload["text"].split()[-1] == "w400"
        await back.says("SAY:and on")
        await back.hears("and on")
        assert len([text for text in back.kept() if "w400" in text]) == 1


async def test_what_hermes_says_while_the_relay_is_away_arrives(gateway: GatewayLab, owner: Owner) -> None:
    gateway.kill_relay()
    sent = gateway.hermes("send", "--to", "talaria", "while you were away")
    assert sent.returncode == 0, sent.stderr
    gateway.begin_relay()
    await gateway.linked()
    async with gateway.phone(session_token=owner.phone.token) as back:
        await back.hears("while you were away")


async def test_a_gateway_that_is_killed_closes_its_message_and_runs_the_turn_again(
    gateway: GatewayLab, owner: Owner
) -> None:
    await owner.says(SLOW)
    half = await until_half_written(owner)
    gateway.lab.kill("gateway")
    gateway.lab.restart("gateway")
    closed = await owner.hears(lambda frame: frame.payload["message_id"] == half, within=60)
    assert closed.payload["interrupted"] is True
    assert "w400" not in closed.payload["text"]
    again = await owner.hears("w400", within=60)
    assert again.payload["message_id"] != half
    await owner.says("SAY:still here")
    await owner.hears("still here", within=60)


async def test_a_restart_in_mid_turn_does_not_hold_up_what_comes_next(gateway: GatewayLab, owner: Owner) -> None:
    await owner.says("STALL:60")
    await owner.until("typing", lambda frame: frame.payload["on"])
    gateway.lab.restart("gateway")
    await gateway.linked()
    await owner.says("SAY:after the restart")
    await owner.hears("after the restart", within=90)


async def test_messages_sent_while_the_gateway_is_down_arrive_once_each_in_order(
    gateway: GatewayLab, owner: Owner
) -> None:
    gateway.lab.kill("gateway")
    before = len(gateway.lab.model_log.read_text().splitlines())
    for number in range(MANY):
        await owner.says(f"SAY:answer-{number}-", client_msg_id=f"many-{number}")
    gateway.lab.restart("gateway")
    last = f"answer-{MANY - 1}-"

    def is_last(frame: Frame) -> bool:
        return bool(frame.payload["text"] == last)

    await owner.hears(is_last, within=MANY * 2)
    answers = [text for text in owner.kept() if text.startswith("answer-")]
    assert answers == [f"answer-{number}-" for number in range(MANY)]
    assert not [text for text in owner.kept() if "Interrupting" in text]
    lines = gateway.lab.model_log.read_text().splitlines()[before:]
    asked = [line for line in lines if '"event": "request"' in line and "answer-" in line]
    assert len(asked) >= MANY
