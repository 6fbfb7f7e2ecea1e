"""Text of a terminal: never cut inside a character or an escape sequence, and free of questions when it is shown again.

A question is what a terminal answers by itself, such as where its cursor is. The answer is input: to a shell that asked
long ago it would be something typed.
"""

from __future__ import annotations

import codecs
import re

MAX_HELD = 64 * 1024  # characters of an unfinished sequence; a longer one is passed on in pieces

_STRINGS = "]PX^_"  # what begins a sequence that holds a text: OSC, DCS, SOS, PM, APC
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[ -/]*|[\]PX^_][^\x07\x18\x1a\x1b]*)\Z")

# Each begins with a set of characters, for which the engine looks fast; what they are is asked after.
_END = r"(?:\x07|\x1b\\|\x9c)"
_QUESTIONS = re.compile(
    r"[\x05\x1b\x90\x9b\x9d](?:(?<=\x05)"  # answerback
    r"|(?:(?<=\x9b)|(?<=\x1b)\[)(?:"
    r"[?>=]?[0-9;]*[nc]"  # status, cursor position, attributes
    r"|[?>]?[0-9;]*\$p"  # the state of a mode
    r"|>[0-9;]*q"  # name and version
    r"|[0-9;]*(?:x|\*y)"  # parameters, a checksum of the screen
    r"|\?u"  # the keyboard protocol
    r"|(?:1[1-9]|2[01])(?:;[0-9;]*)?t)"  # the size and title of the window
    r"|(?:(?<=\x9d)|(?<=\x1b)\])[^\x07\x1b\x9c]*;\?[^\x07\x1b\x9c]*" + _END +  # colours, clipboard
    r"|(?:(?<=\x90)|(?<=\x1b)P)[+$]q[^\x1b\x9c]*" + _END +  # settings, capabilities
    r"|(?<=\x1b)(?:_G[^\x1b]*\x1b\\|Z))"  # pictures, identify
)  # fmt: skip
_SEQUENCES = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
    r"(?:(?<=\x1b)(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]))?"
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
    """`text` has no unfinished sequence."""
    return _QUESTIONS.sub("", text)


def lines(text: str) -> list[str]:
    """What stands in each line, colours kept; what was overwritten from the line's beginning is not there."""
    shown = _SEQUENCES.sub(lambda match: match[0] if _COLOUR.match(match[0]) else "", text)
    return [next((part for part in reversed(line.split("\r")) if part), "") for line in shown.split("\n")]
