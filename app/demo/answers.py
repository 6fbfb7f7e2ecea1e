"""The answers of the stand-in. Nothing that they say they do is done."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import orjson

from app.demo import texts
from app.demo.asks import TIMEOUT
from app.demo.script import Approval, Call, Done, Question, Script, Step

PENDING = "pending"  # the outcome of an approval that nobody could be asked for
RISKY = {
    re.compile(r"\brm\s+-\w*r\w*\s+/"): "delete in root path",
    re.compile(r"\brm\s+-\w*r"): "recursive delete",
    re.compile(r"\bgit\s+push\b.*(--force|\s-f\b)"): "git force push",
}
CLEAN_UP = re.compile(
    r"\b(clean|tidy)\b.*\bup\b|\b(clean|delete|remove)\b.*\b(logs?|files?|folders?|backups?|cache)\b", re.IGNORECASE
)
CHOOSE = re.compile(r"\bwhich colou?r\b|\bhelp me (choose|decide|pick)\b|\bask me\b", re.IGNORECASE)
TOOLS = re.compile(r"\byour tools\b", re.IGNORECASE)
MAIN_ARGUMENT = {"terminal": "command", "web_search": "query"}


def say(text: str) -> Script:
    return Script((Step(text),))


def use(calls: Sequence[Call], *, before: str, after: str | None, together: bool) -> Script:
    """Calls, then `after`, or what the last tool said."""
    return Script((Step(before, tuple(calls), together=together), Step(after or texts.tool_said)))


def for_word(word: str) -> Script:
    """The answer to one of texts.WORDS."""
    match word:
        case "tools":
            return _tools()
        case "markdown":
            return say(texts.MARKDOWN)
        case "slow":
            return Script((Step(texts.SLOW),), pace=12.0)
        case "long":
            return Script((Step(texts.long()),), pace=0.2)
        case "unicode":
            return say(texts.UNICODE)
        case "fail":
            return Script(ending="failed")
        case "error":
            return Script(ending="error")
    return Script((Step(texts.guide()),), pace=0.4)


def plain(message: str) -> Script:
    return Script((Step(texts.plain(message), reasoning=texts.PLAIN_THOUGHT),))


def for_request(message: str) -> Script | None:
    """The answer to what people say in their own words."""
    if CLEAN_UP.search(message):
        ask = command(texts.CLEAN_UP_COMMAND, asks=True)
        return Script((Step(texts.CLEAN_UP, (ask,), texts.CLEAN_UP_THOUGHT), Step(_after_clean_up)))
    if CHOOSE.search(message):
        ask = question(texts.COLOUR, texts.COLOURS)
        return Script((Step(texts.CHOOSE, (ask,), texts.CHOOSE_THOUGHT), Step(_after_choice)))
    if TOOLS.search(message):
        return _tools(texts.TOOLS_THOUGHT)
    return None


def call(tool: str, argument: str) -> Call:
    """`argument` is a JSON object, or the value of the tool's main argument."""
    args: dict[str, Any] = {MAIN_ARGUMENT.get(tool, "input"): argument}
    if argument.startswith("{"):
        with suppress(orjson.JSONDecodeError):
            args = orjson.loads(argument)
    if tool == "terminal":
        return command(str(args.get("command", "")))
    if tool == "clarify":
        return question(str(args.get("question", "")), tuple(map(str, args.get("choices") or ())))
    return Call(tool, args, argument, as_json({"success": True, "data": args}))


def command(line: str, *, asks: bool = False) -> Call:
    """A command of the terminal; what looks risky, or is said to, is asked about first."""
    description = next((what for pattern, what in RISKY.items() if pattern.search(line)), "")
    said = line.removeprefix("echo ") if line.startswith("echo ") else ""
    result = as_json({"output": said, "exit_code": 0, "error": None})
    ask = Approval(line, description or "dangerous command") if asks or description else None
    return Call("terminal", {"command": line}, line, result, ask)


def question(text: str, choices: tuple[str, ...]) -> Call:
    args = {"question": text, "choices": list(choices)} if choices else {"question": text}
    return Call("clarify", args, text, ask=Question(text, choices))


def result_of(call: Call, outcome: str) -> str:
    """What the call returns, given what a person chose or answered."""
    match call.ask:
        case Question(text, choices):
            return as_json({"question": text, "choices_offered": list(choices) or None, "user_response": outcome})
        case Approval(line, what) if outcome == PENDING:
            pending = {"status": "pending_approval", "approval_pending": True, "command": line}
            return as_json(
                {"output": "", "exit_code": -1, "error": "", **pending, "description": what, "pattern_key": what}
            )
        case Approval() if outcome in (TIMEOUT, "deny"):
            why = "timed out without user response" if outcome == TIMEOUT else "denied by user"
            blocked = f"BLOCKED: Command {why}. The user has NOT consented to this action. Do NOT retry this command."
            return as_json({"output": "", "exit_code": -1, "error": blocked, "status": "blocked"})
        case Approval(_, what):
            approved = f"Command required approval ({what}) and was approved by the user."
            return as_json({"output": "", "exit_code": 0, "error": None, "approval": approved})
    return call.result


def as_json(value: object) -> str:
    """With the spaces that the tools of Hermes write."""
    return json.dumps(value, ensure_ascii=False)


def _after_clean_up(done: Sequence[Done]) -> str:
    return texts.CLEAN_UP_ENDS.get(done[-1].outcome, texts.CLEANED_UP)


def _after_choice(done: Sequence[Done]) -> str:
    return texts.chosen(done[-1].outcome)


def _tools(reasoning: str | None = None) -> Script:
    found = {
        "success": True,
        "data": {"web": [{"title": "Talaria", "url": "https://example.org/talaria", "description": "Winged sandals."}]},
    }
    output = as_json({"output": "stand-in", "exit_code": 0, "error": None})
    terminal = Call("terminal", {"command": "uname -n"}, "uname -n", output)
    search = Call("web_search", {"query": "talaria", "limit": 1}, "talaria", as_json(found))
    return Script(
        (
            Step(texts.TOOLS_BEFORE, (terminal,), reasoning),
            Step(texts.TOOLS_BETWEEN, (search,)),
            Step(texts.TOOLS_AFTER),
        )
    )
