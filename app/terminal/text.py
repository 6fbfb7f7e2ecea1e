"""Text of a terminal: never cut inside a character or an escape sequence, and free of questions when it is shown again.

A question is what a terminal answers by itself, such as where its cursor is. The answer is input: to a shell that asked
long ago it would be something typed.
"""

from __future__ import annotations

import codecs
import re

MAX_HELD = 64 * 1024  # characters of an unfinished sequence; a longer one is passed on in pieces

_ST = "\x1b\\"
_STRINGS = "]PX^_"  # what begins a sequence that holds a text: OSC, DCS, SOS, PM, APC
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[ -/]*|[\]PX^_][^\x07\x18\x1a\x1b]*)\Z")

# Each begins with a set of characters, for which the engine looks fast; what they are is asked after. No text holds
# what begins a sequence, and none is read twice (`*+`): so the time is that of the length, whatever is written.
_BREAKS = r"\x18\x1a\x1b\x90\x9a-\x9d\x9f"
_TEXT, _LONG = rf"[^\x07{_BREAKS}]*+", rf"[^{_BREAKS}]*+"
_END = r"(?:\x07|\x1b\\|\x9c|(?=\x1b))"  # many terminals take any ESC for the end
_QUESTIONS = re.compile(
    r"[\x05\x1b\x90\x9a\x9b\x9d\x9f](?:(?<=[\x05\x9a])"  # answerback, identify
    r"|(?:(?<=\x9b)|(?<=\x1b)\[)(?:"
    r"[?>=]?[0-9;]*[nc]"  # status, cursor position, attributes
    r"|[?>]?[0-9;]*\$p"  # the state of a mode
    r"|>[0-9;]*q"  # name and version
    r"|[0-9;]*(?:x|\*y|\$[uw]|&u|#[R|]|'\|)"  # parameters, a checksum of the screen, reports of state, colours, mouse
    r"|\?[0-9;]*[Smu]"  # graphics, what keys send, the keyboard protocol
    r"|0*(?:1[1-9]|2[01])(?:;[0-9;]*)?t)"  # the size and title of the window
    rf"|(?:(?<=\x9d)|(?<=\x1b)\])(?:(?:[^;\x07{_BREAKS}]|;(?!\?))*+;\?"  # colours, clipboard
    rf"|(?:9|21|52|60|61|99|777)(?=[;\x07{_BREAKS}])"  # colours, features; and what is done once: clipboard, notices
    rf"|1337;(?:Report|Capabilities|RequestUpload)){_TEXT}{_END}"
    rf"|(?:(?<=\x90)|(?<=\x1b)P)[0-9;]*[+$]q{_LONG}{_END}"  # settings, capabilities
    rf"|(?:(?<=\x9f)|(?<=\x1b)_)G{_LONG}{_END}"  # pictures
    r"|(?<=\x1b)Z)"  # identify
)
# A bell that ends a text belongs to it; any other rings, also in the middle of a sequence.
_BELLS = re.compile(rf"((?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f]){_TEXT}\x07)|\x07")
_SEQUENCES = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
    r"(?:(?<=\x1b)(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]))?"
)
# What terminals answer by themselves. `CSI 1 ; 2 R` to `8 R` are left out: they are also F3, with Shift and its like.
_ANSWERS = re.compile(
    rb"(?:\x1b\[(?:[?>=][0-9;]*(?:[cnRSu]|\$y)|[0-9;]*(?:[ntx]|\$y)|(?!1;[2-8]R)[0-9]+;[0-9]+R)"
    rb"|\x1b[\]P_][^\x07\x1b]*(?:\x07|\x1b\\))+"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m\Z")


class Splitter:
    """Bytes as they come from a terminal → text that ends where a character and a sequence end."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        text = self._held + self._decoder.decode(data)
        whole = _whole(text)
        if len(text) - whole > MAX_HELD:
            whole = len(text)
        self._held = text[whole:]
        return text[:whole] if self._held else text

    def flush(self) -> str:
        """What is left when nothing more comes."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return text


def _whole(text: str) -> int:
    """How much of `text` comes before a sequence that it does not finish."""
    last = text.rfind("\x1b")
    if last < 0:
        return len(text)
    if last == len(text) - 1 and last > 0:  # it may be the first half of what ends a text
        before = text.rfind("\x1b", 0, last)
        if before >= 0 and text[before + 1] in _STRINGS and _UNFINISHED.match(text, before, last):
            return before
    return last if _UNFINISHED.match(text, last) else len(text)


def without_questions(text: str) -> str:
    """`text` has no unfinished sequence. Nor has it what is to happen once only: a bell, a clipboard that is set, a
    notice.

    What is taken out leaves an ST, which does nothing, lest what stood around it become a question.
    """
    silent = _BELLS.sub(lambda match: match[1] or "", text)
    return _QUESTIONS.sub(lambda _: _ST, silent)


def is_answer(data: bytes) -> bool:
    """Whether a terminal has said this by itself, and nobody has typed it."""
    return _ANSWERS.fullmatch(data) is not None


def lines(text: str) -> list[str]:
    """What stands in each line, colours kept; what was overwritten from the line's beginning is not there."""
    shown = _SEQUENCES.sub(lambda match: match[0] if _COLOUR.match(match[0]) else "", text)
    return [next((part for part in reversed(line.split("\r")) if part), "") for line in shown.split("\n")]
