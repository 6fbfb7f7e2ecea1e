"""One turn: plays a script as events and, whoever listens, as rows of the history."""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import TYPE_CHECKING, Any

import orjson

from app.demo import texts
from app.demo.script import Bench, Call, Script
from app.demo.stream import KEEPALIVE, Outlet

if TYPE_CHECKING:
    from app.demo.agent import Agent

PIECE = re.compile(r"\s*\S+\s*\Z|\s*\S+")
THINKING_CHARS = 500
TOOL_PACE = 20  # a tool takes as long as this many words
PROMPT_TOKENS = 12_700  # what Hermes' own prompt costs


class _Lost(Exception):
    """The agent died with this turn: nothing more is sent or stored."""


class Turn:
    """Owned by the agent, not by the request that began it."""

    def __init__(self, agent: Agent, session_id: str, message: str, script: Script, outlet: Outlet) -> None:
        self.session_id = session_id
        self.content = ""
        self.usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        self.crashed = False
        self._agent = agent
        self._history = agent.history
        self._message = message
        self._script = script
        self._outlet = outlet
        self._run_id = f"run_{uuid.uuid4().hex}"
        self._message_id = f"msg_{uuid.uuid4().hex}"
        self._first_session = session_id
        self._seq = 0
        self._deltas = 0
        self._gate_passed = not script.gated
        self._messages: list[dict[str, Any]] = []
        self._delay_s = agent.delay_s * script.pace if script.delay_s is None else script.delay_s

    async def run(self) -> None:
        """Play to the end. Cancelled, it ends as in a Hermes that is told to stop: `done`, and no row."""
        try:
            self._history.add(self.session_id, {"role": "user", "content": self._message})
            if self._script.bench is not None:
                await self._bench(self._script.bench)
            else:
                await self._play()
        except _Lost:
            pass
        except asyncio.CancelledError:
            self._emit("done")
            raise

    async def _play(self) -> None:
        self._emit("run.started", user_message={"role": "user", "content": self._message})
        self._emit("message.started", message={"id": self._message_id, "role": "assistant"})
        self._cut_if_due()
        for number, step in enumerate(self._script.steps):
            await self._say(step.text, prefix="\n\n" if number else "")
            if step.calls:
                await self._call_tools(step.text, step.calls)
        await self._pass_gate()
        await self._finish()

    async def _say(self, text: str, prefix: str) -> None:
        for piece in PIECE.findall(text):
            await self._pause()
            if self._deltas == 1:
                await self._pass_gate()
            self._delta(prefix + piece)
            prefix = ""
        # A copy of the text, which Hermes calls thinking.
        self._emit("tool.progress", message_id=self._message_id, tool_name="_thinking", delta=text[:THINKING_CHARS])

    def _delta(self, text: str) -> None:
        self._emit("assistant.delta", message_id=self._message_id, delta=text)
        self._deltas += 1
        self._cut_if_due()
        if self._deltas == 1 and self._script.keepalive:
            self._outlet.write(KEEPALIVE)
        if self._deltas == 1 and self._script.custom:
            self._emit("memory.updated", name="MEMORY.md")
            self._emit("custom.preview", detail={"of": ["an", "unknown", "family"]})

    def _cut_if_due(self) -> None:
        if self._deltas == self._script.cut:
            self._outlet.hang_up()
            if self._script.lost:
                raise _Lost

    async def _pass_gate(self) -> None:
        """Before the second delta; an answer of one delta waits before its end."""
        if not self._gate_passed:
            self._gate_passed = True
            await self._agent.wait_at_gate()

    async def _pause(self, times: float = 1) -> None:
        await asyncio.sleep(self._delay_s * times)

    async def _call_tools(self, text: str, calls: tuple[Call, ...]) -> None:
        ids = [uuid.uuid4().hex[:12] for _ in calls]
        rows = [_tool_call(call, call_id) for call, call_id in zip(calls, ids, strict=True)]
        self._keep(
            {"role": "assistant", "content": text, "tool_calls": rows, "finish_reason": "tool_calls", "reasoning": None}
        )
        for call, call_id in zip(calls, ids, strict=True):
            about = {"message_id": self._message_id, "tool_name": call.name}
            self._emit("tool.started", **about, preview=call.preview, args=dict(call.args))
            await self._pause(TOOL_PACE)
            self._emit("tool.completed", **about, preview=None, args=None)
            self._keep(
                {"role": "tool", "content": call.result, "tool_call_id": f"call_{call_id}", "tool_name": call.name}
            )

    def _keep(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._history.add(self.session_id, message)

    async def _finish(self) -> None:
        match self._script.ending:
            case "error":
                await self._pause(TOOL_PACE)
                self.crashed = True
                self._emit("error", message=texts.ERROR)
                self._emit("done")
            case "failed":
                await self._pause(TOOL_PACE)
                self.content = texts.FAILED
                self._complete()
            case "completed":
                self._store()
                self._complete()
            case ending:
                if not self._script.lost:
                    self._store()
                if ending == "done":
                    self._emit("done")

    def _store(self) -> None:
        """The last row, in another session if the conversation was compressed; then the bill."""
        if self._script.moved:
            self.session_id = self._history.compress(self.session_id).id
        self.content = self._script.steps[-1].text if self._script.steps else ""
        thought = self._script.reasoning
        message = {"role": "assistant", "content": self.content, "finish_reason": "stop", "reasoning": thought}
        self._keep(message if thought is None else message | {"reasoning_content": thought})
        prompt = (PROMPT_TOKENS + len(self._message) // 4) * len(self._script.steps)
        self.usage = {"input_tokens": prompt, "output_tokens": self._deltas, "total_tokens": prompt + self._deltas}
        self._history.count(
            self.session_id, input_tokens=prompt, output_tokens=self._deltas, calls=len(self._script.steps)
        )

    def _complete(self) -> None:
        flags = {"completed": True, "partial": False, "interrupted": False}
        ids = {"session_id": self.session_id, "message_id": self._message_id}
        self._emit("assistant.completed", **ids, content=self.content, **flags)
        self._emit("run.completed", **ids, completed=True, messages=self._messages, usage=self.usage)
        self._emit("done")

    async def _bench(self, bench: Bench) -> None:
        self._emit("run.started", user_message={"role": "user", "content": self._message})
        clock, padding = self._agent.clock, "x" * bench.padding
        due = clock.monotonic()
        for _ in range(bench.count):
            self._emit(
                "assistant.delta", message_id=self._message_id, delta=f"t={clock.monotonic() * 1e9:.0f} {padding}"
            )
            if bench.interval_ms:
                due += bench.interval_ms / 1000
                await asyncio.sleep(max(0.0, due - clock.monotonic()))
            else:
                await self._outlet.room()
        self.usage = {"input_tokens": 1, "output_tokens": bench.count, "total_tokens": bench.count + 1}
        self._keep({"role": "assistant", "content": "bench", "finish_reason": "stop"})
        self._complete()

    def _emit(self, event: str, **payload: Any) -> None:
        """Every payload ends with the same four fields; numbers go on whether or not anyone listens."""
        self._seq += 1
        if self._outlet.left:
            return
        payload.setdefault("session_id", self._first_session)
        payload["run_id"] = self._run_id
        payload["seq"] = self._seq
        payload["ts"] = self._agent.clock.now()
        self._outlet.write(b"event: %b\ndata: %b\n\n" % (event.encode(), orjson.dumps(payload)))


def _tool_call(call: Call, call_id: str) -> dict[str, Any]:
    return {
        "id": f"call_{call_id}",
        "call_id": f"call_{call_id}",
        "response_item_id": f"fc_{call_id}",
        "type": "function",
        "function": {"name": call.name, "arguments": orjson.dumps(dict(call.args)).decode()},
    }
