"""A device that is attached to a session, for tests: it types, and reads what comes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.phone import WAIT, Frame, Phone
from tests.relay import RunningRelay
from tests.terminal.conftest import PROMPT


@dataclass(slots=True)
class Seat:
    phone: Phone
    name: str
    attached: dict[str, Any]
    text: str = ""
    others: list[Frame] = field(default_factory=list)  # what came that was no output of this session

    async def type(self, data: str, **fields: Any) -> str:
        return await self.phone.send("terminal", "terminal.input", session_name=self.name, data=data, **fields)

    async def run(self, command: str) -> str:
        """What a command that ends with its line wrote."""
        mark = f"end-{len(self.text)}"
        await self.type(f"{command}; echo {mark[:3]}''{mark[3:]}\r")
        return (await self.until(mark)).removesuffix(mark)

    async def until(self, text: str) -> str:
        """Everything up to and with `text`, of what was not returned before."""
        async with asyncio.timeout(WAIT):
            while text not in self.text:
                frame = await self.phone.next()
                if frame.type == "terminal.output" and frame.payload["session_name"] == self.name:
                    self.text += frame.payload["data"]
                else:
                    self.others.append(frame)
        end = self.text.index(text) + len(text)
        found, self.text = self.text[:end], self.text[end:]
        return found

    async def size(self) -> tuple[int, int]:
        """(cols, rows) as the shell has it."""
        await self.type("echo size: $(stty size) :e''nd\r")
        found = (await self.until(":end")).rsplit("size: ", 1)[1].split()
        return int(found[1]), int(found[0])

    async def detached(self) -> dict[str, Any]:
        while True:
            for frame in self.others:
                if frame.type == "terminal.detached" and frame.payload["session_name"] == self.name:
                    return frame.payload
            frame = await self.phone.next()
            if frame.type == "terminal.output" and frame.payload["session_name"] == self.name:
                self.text += frame.payload["data"]
            else:
                self.others.append(frame)


async def sit(phone: Phone, name: str = "work", cols: int = 80, rows: int = 24) -> Seat:
    """Attach; the shell is ready."""
    answer = await phone.ask("terminal", "terminal.attach", session_name=name, cols=cols, rows=rows)
    assert answer.type == "terminal.attached", answer
    seat = Seat(phone, name, answer.payload)
    if not answer.payload["reattach"]:
        await seat.until(PROMPT.strip())
    return seat


async def seat(relay: RunningRelay, name: str = "work", cols: int = 80, rows: int = 24, **fields: Any) -> Seat:
    return await sit(await relay.connect(**fields), name, cols, rows)
