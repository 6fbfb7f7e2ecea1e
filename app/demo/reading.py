"""From the words of a message to what the answer will do."""

from __future__ import annotations

import re
from dataclasses import replace

from app.demo import answers, texts
from app.demo.script import Bench, Call, Script

TO_THE_END_OF_ITS_LINE = re.compile(r"\b(SAY|PRE|APPROVE2?|ASK|TOOL:\w+):([^\n]*)")
THINK = re.compile(r"\bTHINK\b(?::([^\n]*))?")
NUMBER = re.compile(r"\b(WORDS|DELAY):(\d+(?:\.\d+)?)")
BENCH = re.compile(r"bench:(\d+):(\d+(?:\.\d+)?)(?::(\d+))?")
CUT = re.compile(r"cut:(\d+)")
REFUSE = re.compile(r"http(429|500|503)")
AROUND = ".,;!?()\"'`*"


def read_script(message: str) -> Script:
    """Markers come first, then what the sentence asks for, then the first word that picks an answer."""
    thought = THINK.search(message)
    without = THINK.sub("", message)
    said = {name: text.strip() for name, text in TO_THE_END_OF_ITS_LINE.findall(without)}
    rest = TO_THE_END_OF_ITS_LINE.sub("", without)  # what is to be said or done must not steer how
    numbers = {name: float(value) for name, value in NUMBER.findall(rest)}
    marks = [word.strip(AROUND) for word in rest.lower().split()]
    script = _picked(message, rest, said, numbers.get("WORDS"), marks, _calls(without))
    if thought is not None or "reasoning" in marks:
        reasoning = (thought.group(1) if thought else None) or texts.REASONING
        script = replace(script, steps=tuple(replace(step, reasoning=reasoning.strip()) for step in script.steps))
    return replace(
        script,
        delay_s=numbers["DELAY"] / 1000 if "DELAY" in numbers else None,
        ending="nothing" if "nodone" in marks else "done" if "done-only" in marks else script.ending,
        cut=_number(CUT, marks),
        refuse=_number(REFUSE, marks),
        bench=_bench(marks),
        moved="moved" in marks or "COMPRESS" in rest.split(),
        gated="gated" in marks,
        split="split" in marks,
        lost="lost" in marks,
        custom="custom" in marks,
        keepalive="keepalive" in marks,
    )


def _picked(
    message: str, rest: str, said: dict[str, str], words: float | None, marks: list[str], calls: list[Call]
) -> Script:
    if calls:
        return answers.use(calls, before=said.get("PRE", ""), after=said.get("SAY"), together="APPROVE2" in said)
    if "SAY" in said:
        return answers.say(said["SAY"].replace("\\n", "\n"))
    if words is not None:
        return answers.say(" ".join(f"w{n}" for n in range(1, int(words) + 1)))
    if THINK.search(message) and not rest.strip():
        return answers.say(texts.THOUGHT)
    if (script := answers.for_request(rest)) is not None:
        return script
    word = next((mark for mark in marks if mark in texts.WORDS), "unicode" if "split" in marks else "")
    return answers.for_word(word) if word else answers.plain(message)


def _calls(text: str) -> list[Call]:
    calls: list[Call] = []
    for name, said in TO_THE_END_OF_ITS_LINE.findall(text):
        said = said.strip()
        match name.partition(":"):
            case ("TOOL", _, tool):
                calls.append(answers.call(tool, said))
            case ("APPROVE" | "APPROVE2", _, _):
                commands = said.split("|") if name == "APPROVE2" else [said]
                calls += [answers.command(command.strip(), asks=True) for command in commands]
            case ("ASK", _, _):
                question, *choices = [part.strip() for part in said.split("|")]
                calls.append(answers.question(question, tuple(choices)))
    return calls


def _number(pattern: re.Pattern[str], marks: list[str]) -> int | None:
    return next((int(found.group(1)) for mark in marks if (found := pattern.fullmatch(mark))), None)


def _bench(marks: list[str]) -> Bench | None:
    for mark in marks:
        if found := BENCH.fullmatch(mark):
            return Bench(int(found.group(1)), float(found.group(2)), int(found.group(3) or 0))
    return None
