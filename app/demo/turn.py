"""One turn: plays a script to a surface and, whoever listens, as rows of the history."""

from __future__ import annotations

import asyncio
import re
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from app.demo import texts
from app.demo.answers import PENDING, result_of
from app.demo.script import Approval, Bench, Call, Done, Question, Script, Step
from app.demo.surface import Surface

if TYPE_CHECKING:
    from app.demo.agent import Agent

PIECE = re.compile(r"\s*\S+\s*\Z|\s*\S+")
TOOL_PACE = 20  # a tool takes as long as this many words
PROMPT_TOKENS = 12_700  # what Hermes' own prompt costs


class _Lost(Exception):
    """The agent died with this turn: nothing more is sent or stored."""


class Turn:
    """Owned by the agent, not by the request that began it. `task` is set by the agent."""

    task: asyncio.Task[None]

    def __init__(self, agent: Agent, session_id: str, message: str, script: Script, surface: Surface) -> None:
        self.session_id = session_id
        self.message = message
        self.content = ""
        self.reasoning = ""
        self.usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        self.calls = 0  # requests to the model
        self.messages: list[dict[str, Any]] = []
        self.crashed = False
        self._agent = agent
        self._history = agent.history
        self._script = script
        self._surface = surface
        self._begun = self._over = self._is_interrupted = False
        self._step = Step("")
        self._segment: list[str] = []
        self._in_use: dict[str, Call] = {}
        self._deltas = 0
        self._gate_passed = not script.gated
        self._delay_s = agent.delay_s * script.pace if script.delay_s is None else script.delay_s

    def interrupt(self) -> None:
        """End it as soon as may be. What was said so far is stored."""
        if self._over or self._is_interrupted:
            return
        self._is_interrupted = True
        if self._begun:  # a task that is cancelled before its first step would run nothing at all
            self.task.cancel()

    async def run(self) -> None:
        """Play to the end. Cancelled, it ends as in a Hermes that is told to stop: no end, and no row."""
        self._begun = True
        try:
            self._history.add(self.session_id, {"role": "user", "content": self.message})
            if self._is_interrupted:
                self._give_up()
            elif self._script.bench is not None:
                await self._bench(self._script.bench)
            else:
                await self._play()
        except _Lost:
            self._surface.lost()
        except asyncio.CancelledError:
            if not self._is_interrupted:
                self._surface.stopped()
                raise
            self.task.uncancel()
            self._give_up()
        finally:
            self._over = True

    async def _play(self) -> None:
        self._surface.began(self)
        self._surface.replies()
        self._cut_if_due()
        done: list[Done] = []
        for number, step in enumerate(self._script.steps):
            text = step.text if isinstance(step.text, str) else step.text(done)
            if not self._surface.asks_questions and (asked := _question(step)) is not None:
                await self._say(step, "\n\n".join(filter(None, (text, texts.cannot_ask(asked)))), number)
                break
            await self._say(step, text, number)
            if step.calls:
                done = await self._use_tools(step, text)
        await self._pass_gate()
        await self._finish()

    async def _say(self, step: Step, text: str, number: int) -> None:
        self.calls += 1
        self._step = step
        self.content, self.reasoning = text, step.reasoning or self.reasoning
        self._surface.thinks()
        for piece in PIECE.findall(step.reasoning or ""):
            await self._pause()
            self._surface.reasoned(piece)
        self._segment.clear()
        prefix = "\n\n" if number else ""
        for piece in PIECE.findall(text):
            await self._pause()
            if self._deltas == 1:
                await self._pass_gate()
            self._segment.append(piece)
            self._delta(prefix + piece)
            prefix = ""
        self._surface.wrote(text, () if _question(step) and not self._surface.asks_questions else step.calls)

    def _delta(self, text: str) -> None:
        self._surface.said(text)
        self._deltas += 1
        self._cut_if_due()
        if self._deltas == 1 and self._script.keepalive:
            self._surface.keepalive()
        if self._deltas == 1 and self._script.custom:
            self._surface.unknown()

    def _cut_if_due(self) -> None:
        if self._deltas == self._script.cut:
            self._surface.cut()
            if self._script.lost:
                raise _Lost

    async def _pass_gate(self) -> None:
        """Before the second delta; an answer of one delta waits before its end."""
        if not self._gate_passed:
            self._gate_passed = True
            await self._agent.wait_at_gate()

    async def _pause(self, times: float = 1) -> None:
        await asyncio.sleep(self._delay_s * times)

    async def _use_tools(self, step: Step, text: str) -> list[Done]:
        calls = [(call, uuid.uuid4().hex[:12]) for call in step.calls]
        rows = [_tool_call(call, call_id) for call, call_id in calls]
        self._keep(
            _thought(step, {"role": "assistant", "content": text, "tool_calls": rows, "finish_reason": "tool_calls"})
        )
        self._segment.clear()  # whoever interrupts from here on breaks off nothing that was said
        if not step.together:
            return [await self._use(call, call_id) for call, call_id in calls]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._use(call, call_id)) for call, call_id in calls]
        return [task.result() for task in tasks]

    async def _use(self, call: Call, call_id: str) -> Done:
        clock = self._agent.clock
        began, self._in_use[call_id] = clock.monotonic(), call
        self._surface.tool_began(call, f"call_{call_id}")
        outcome = await self._ask(call)
        if call.ask is None:
            await self._pause(TOOL_PACE)
        done = Done(call, result_of(call, outcome), outcome)
        self._end_tool(call_id, done, clock.monotonic() - began)
        return done

    def _end_tool(self, call_id: str, done: Done, seconds: float) -> None:
        del self._in_use[call_id]
        self._surface.tool_ended(done.call, f"call_{call_id}", done.result, seconds)
        row = {"role": "tool", "content": done.result, "tool_call_id": f"call_{call_id}", "tool_name": done.call.name}
        self._keep(row)

    async def _ask(self, call: Call) -> str:
        surface, asks = self._surface, self._agent.asks
        match call.ask:
            case Approval(_, what):
                if not surface.asks_approvals:
                    return PENDING
                return await asks.approval(surface.lane, what, partial(surface.approval_asked, call))
            case Question() as question:
                return await asks.question(surface.lane, partial(surface.question_asked, question))
        return ""

    def _keep(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self._history.add(self.session_id, message)

    async def _finish(self) -> None:
        match self._script.ending:
            case "error":
                await self._pause(TOOL_PACE)
                self.crashed = True
                self._surface.crashed(texts.ERROR)
            case "failed":
                self._surface.thinks()
                await self._pause(TOOL_PACE)
                self.content = texts.FAILED
                self._surface.failed(self, texts.FAILED)
            case "completed":
                self._store()
                self._surface.completed(self)
            case ending:
                if not self._script.lost:
                    self._store()
                if ending == "done":
                    self._surface.stopped()

    def _store(self) -> None:
        """The last row, in another session if the conversation was compressed; then the bill."""
        if self._script.moved:
            self.session_id = self._history.compress(self.session_id).id
        self._keep(_thought(self._step, {"role": "assistant", "content": self.content, "finish_reason": "stop"}))
        self._bill()

    def _bill(self) -> None:
        prompt, said = (PROMPT_TOKENS + len(self.message) // 4) * self.calls, self._deltas
        self.usage = {"input_tokens": prompt, "output_tokens": said, "total_tokens": prompt + said}
        self._history.count(self.session_id, input_tokens=prompt, output_tokens=said, calls=self.calls)

    def _give_up(self) -> None:
        """Who interrupts a tool that asks has denied it."""
        for call_id, call in list(self._in_use.items()):
            self._end_tool(call_id, Done(call, result_of(call, "" if isinstance(call.ask, Question) else "deny")), 0.0)
        self.content = "".join(self._segment).strip()
        if self.content:
            self._keep({"role": "assistant", "content": self.content, "finish_reason": None, "reasoning": None})
        self._surface.interrupted(self)

    async def _bench(self, bench: Bench) -> None:
        surface, clock, padding = self._surface, self._agent.clock, "x" * bench.padding
        surface.began(self)
        due = clock.monotonic()
        for number in range(bench.count):
            surface.said(f"t={clock.monotonic() * 1e9:.0f} {padding}")
            if bench.interval_ms:
                due += bench.interval_ms / 1000
                await asyncio.sleep(max(0.0, due - clock.monotonic()))
            elif number % surface.stride == 0:
                await surface.room()
        self.usage = {"input_tokens": 1, "output_tokens": bench.count, "total_tokens": bench.count + 1}
        self._keep({"role": "assistant", "content": "bench", "finish_reason": "stop"})
        surface.completed(self)


def _question(step: Step) -> Question | None:
    return next((call.ask for call in step.calls if isinstance(call.ask, Question)), None)


def _thought(step: Step, message: dict[str, Any]) -> dict[str, Any]:
    """As Hermes stores it: `reasoning` always, `reasoning_content` only where there was some."""
    thought = {} if step.reasoning is None else {"reasoning_content": step.reasoning}
    return message | {"reasoning": step.reasoning} | thought


def _tool_call(call: Call, call_id: str) -> dict[str, Any]:
    return {
        "id": f"call_{call_id}",
        "call_id": f"call_{call_id}",
        "response_item_id": f"fc_{call_id}",
        "type": "function",
        "function": {"name": call.name, "arguments": orjson.dumps(dict(call.args)).decode()},
    }
