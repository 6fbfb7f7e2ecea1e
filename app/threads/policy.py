"""What the texts of Hermes' gateway mean: it writes for chat apps, and says in text what has no field there. Pure."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

CURSOR = "▉"  # behind the text of a message that is being written
FALLBACK = "(Response formatting failed, plain text:)\n\n"  # before what Hermes sends a second time
_SILENCE = ("[SILENT]", "SILENT", "NO_REPLY", "NO REPLY")  # what an agent says that wants to say nothing
_MAX_SILENCE = 64
# With `display.platforms.talaria.show_reasoning`, in each of the styles that `reasoning_style` may have.
_REASONING = (
    re.compile(r"\A💭 \*\*Reasoning:\*\*\n```\n(.*?)\n```\n\n", re.DOTALL),
    re.compile(r"\A> 💭 \*\*Reasoning:\*\*\n((?:>[^\n]*\n)+)\n"),
    re.compile(r"\A-# 💭 Reasoning\n((?:-#[^\n]*\n)+)\n"),
)
_CRON = re.compile(
    r"\ACronjob Response: ([^\n]*)\n\(job_id: [^\n]*\)\n-+\n\n(.*?)\n\nTo stop or manage this job, [^\n]*\Z", re.DOTALL
)
# How Hermes says what a tool does, where it does not name the tool.
_VERBS = {
    "Searching the web for": "web_search", "Reading skill": "skill_view", "Reading": "read_file",
    "Browsing": "browser_navigate", "Clicking": "browser_click", "Typing": "browser_type", "Writing": "write_file",
    "Editing": "patch", "Searching files for": "search_files", "Running code": "execute_code", "Running": "terminal",
    "Generating image": "image_generate", "Generating video": "video_generate",
    "Generating speech": "text_to_speech", "Looking at the image": "vision_analyze",
    "Searching past sessions": "session_search", "Listing skills": "skills_list", "Updating skill": "skill_manage",
    "Delegating": "delegate_task", "Scheduling": "cronjob", "Asking": "clarify", "Updating memory": "memory",
    "Updating tasks": "todo",
}  # fmt: skip
_NAMED = re.compile(r"\A([A-Za-z_][\w-]*(?:\.[\w-]+)*)(?:: \"(.*)\"|\.\.\.|\(\[.*\]\))\Z", re.DOTALL)
_TIMES = re.compile(r" \(×\d+\)\Z")


def shown(text: str) -> str:
    """A text as people read it: without the cursor mark, and the empty lines before a segment after a tool."""
    text = text.lstrip("\n").removeprefix(FALLBACK)
    if text.endswith(CURSOR):
        text = text.removesuffix(CURSOR).removesuffix(" ")
    return text


def is_silence(text: str) -> bool:
    return _canonical(text) in _SILENCE


def may_be_silence(text: str) -> bool:
    """The beginning of what may become a silence: shown only once it has become something else."""
    said = _canonical(text)
    return any(mark.startswith(said) for mark in _SILENCE)


def _canonical(text: str) -> str:
    text = text.strip()
    if len(text) > _MAX_SILENCE:
        return text
    while text and text[0] not in "[]" and unicodedata.category(text[0])[0] == "P":
        text = text[1:]
    while text and text[-1] not in "[]_" and unicodedata.category(text[-1])[0] == "P":
        text = text[:-1]
    return " ".join(text.upper().split())


def split_reasoning(text: str) -> tuple[str | None, str]:
    """(what the agent thought, what it says)."""
    for form in _REASONING:
        if (found := form.match(text)) is not None:
            thought = re.sub(r"^(?:> ?|-# ?)", "", found[1].rstrip("\n"), flags=re.MULTILINE)
            return thought, text[found.end() :]
    return None, text


def split_cron(text: str) -> tuple[str | None, str]:
    """(name of the job, what it reports): with `cron.wrap_response` Hermes puts words of its own around it."""
    found = _CRON.match(text)
    return (None, text) if found is None else (found[1], found[2])


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a progress bubble. `tool` None: it is what the agent says meanwhile."""

    tool: str | None
    text: str


def steps(text: str) -> list[Step]:
    """What a progress bubble tells, in order. Hermes appends to it; a repeated step counts up in its last line."""
    found: list[Step] = []
    for block in _blocks(text):
        symbol, _, rest = block.partition(" ")
        rest = _TIMES.sub("", rest.strip())
        if block.startswith("```"):  # a further command under the same heading
            found.append(Step("terminal", _unfenced(block)))
        elif not _is_symbol(symbol) or symbol == "💬":
            found.append(Step(None, rest if symbol == "💬" else block))
        else:
            found.append(_tool(rest) or Step(None, block))
    return found


def is_progress(text: str) -> bool:
    """Whether a text that nothing else marks is a progress bubble: every line of it says what a tool does."""
    text = shown(text)
    return _is_symbol(text.partition(" ")[0]) and all(step.tool in _KNOWN for step in steps(text))


_KNOWN = frozenset(_VERBS.values())


def _tool(rest: str) -> Step | None:
    head, _, body = rest.partition("\n")
    if body.startswith("```"):
        return Step(head, _unfenced(body))
    if (named := _NAMED.match(head)) is not None:
        return Step(named[1], named[2] or body)
    for verb, tool in _VERBS.items():
        if head == verb or head.startswith(verb + " "):
            return Step(tool, head.removeprefix(verb).strip())
    return None


def _unfenced(block: str) -> str:
    return _TIMES.sub("", block).removeprefix("```").removesuffix("```").strip("\n")


def _blocks(text: str) -> list[str]:
    """Lines, but a fence and what it holds are one with the line above; a line without a symbol goes on the last."""
    blocks: list[str] = []
    fenced = False
    for line in text.strip("\n").split("\n"):
        is_fence = line.startswith("```")
        opens = is_fence and not fenced
        if fenced or is_fence:
            fenced = fenced != is_fence
        if opens and (not blocks or "```" in blocks[-1]):
            blocks.append(line)
        elif blocks and (fenced or is_fence or not _is_symbol(line.partition(" ")[0])):
            blocks[-1] += f"\n{line}"
        else:
            blocks.append(line)
    return blocks


def _is_symbol(word: str) -> bool:
    """An emoji, in one or more code points."""
    return bool(word) and all(unicodedata.category(one) in ("So", "Sm", "Sk", "Mn", "Cf", "Cn", "Po") for one in word)
