"""What a phone can be asked to do: the commands of hermes-relay's bridge, in one table.

Routes, MCP tools and their schemas are made of it. A phone decides by itself what it does: parameters are passed on as
they come, and a command that it does not know is its refusal, not ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

TIMEOUT_S = 30.0

JsonType = Literal["string", "integer", "boolean", "object", "array"]


@dataclass(frozen=True, slots=True)
class Param:
    """`private`: what somebody types; it is shown in no record of what was done."""

    name: str
    type: JsonType
    summary: str
    required: bool = False
    choices: tuple[str, ...] = ()
    private: bool = False

    def schema(self) -> dict[str, Any]:
        """As JSON Schema."""
        said: dict[str, Any] = {"type": self.type, "description": self.summary}
        return said | ({"enum": list(self.choices)} if self.choices else {})


@dataclass(frozen=True, slots=True)
class Command:
    """`path` is what the phone knows it by, and its route.

    `destructive`: it reaches other people or other apps, and cannot be taken back. `untrusted`: its answer holds what
    others wrote. `wakes`: it is worth waking a phone that sleeps.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    summary: str
    params: tuple[Param, ...] = ()
    destructive: bool = False
    untrusted: bool = False
    wakes: bool = True
    timeout_s: float = TIMEOUT_S

    def schema(self) -> dict[str, Any]:
        """Of its arguments, as JSON Schema."""
        return {
            "type": "object",
            "properties": {param.name: param.schema() for param in self.params},
            "required": [param.name for param in self.params if param.required],
        }

    @property
    def is_private(self) -> bool:
        """It is given something that is shown in no record."""
        return any(param.private for param in self.params)

    def hides(self, name: str) -> bool:
        """Such an argument is shown in no record. Nor is one that is not in the table, where another is private: a
        phone may take the same by a name of its own.
        """
        return self.is_private and all(param.private or param.name != name for param in self.params)


def _text(name: str, summary: str, *, required: bool = False, private: bool = False) -> Param:
    return Param(name, "string", summary, required=required, private=private)


def _number(name: str, summary: str, *, required: bool = False) -> Param:
    return Param(name, "integer", summary, required=required)


def _strokes(what: str) -> tuple[Param, ...]:
    return (
        _number("start_x", "where it starts, in pixels from the left", required=True),
        _number("start_y", "where it starts, in pixels from the top", required=True),
        _number("end_x", "where it ends, in pixels from the left", required=True),
        _number("end_y", "where it ends, in pixels from the top", required=True),
        _number("duration_ms", f"how long the {what} takes, in milliseconds"),
    )


_X = _number("x", "pixels from the left of the screen")
_Y = _number("y", "pixels from the top of the screen")
_NODE = _text("nodeId", "an element of the screen, by the id that screen or find_nodes gave it; instead of x and y")
_EXTRAS = Param("extras", "object", "names and texts that go along", private=True)
_FILES = Param("attachments", "array", 'files, each {"media": "MEDIA:hermes-relay://TOKEN"} of a file on this relay')

COMMANDS: tuple[Command, ...] = (
    Command("ping", "GET", "/ping", "Whether the phone answers", wakes=False),
    # looking
    Command(
        "screen", "GET", "/screen", "What is on the screen, as a list of its elements",
        (Param("include_bounds", "boolean", "with the place of each element"),), untrusted=True,
    ),
    Command("screenshot", "GET", "/screenshot", "A picture of the screen", untrusted=True),
    Command(
        "find_nodes", "POST", "/find_nodes", "The elements of the screen that match, all conditions together",
        (
            _text("text", "a part of its text"), _text("class_name", "its class"),
            Param("clickable", "boolean", "whether it can be tapped"),
            _number("limit", "how many at most; 20 if unsaid"),
        ),
        untrusted=True,
    ),
    Command(
        "describe_node", "POST", "/describe_node", "Everything about one element of the screen",
        (_text("nodeId", "its id, as screen or find_nodes gave it", required=True),), untrusted=True,
    ),
    Command("screen_hash", "GET", "/screen_hash", "A hash of the screen, to see later whether it has changed"),
    Command(
        "diff_screen", "POST", "/diff_screen", "Whether the screen has changed since a hash of it",
        (_text("previous_hash", "as screen_hash gave it", required=True),),
    ),
    Command("current_app", "GET", "/current_app", "The app in the foreground"),
    Command("get_apps", "GET", "/get_apps", "The apps that can be opened"),
    Command("apps", "GET", "/apps", "The apps that can be opened, by an older name"),
    Command(
        "events", "GET", "/events", "What has happened on the screen lately, once events_stream is on",
        (_number("limit", "how many at most"), _number("since", "only later ones, in Unix milliseconds")),
        untrusted=True,
    ),
    Command(
        "events_stream", "POST", "/events/stream", "Begin or end to note what happens on the screen",
        (Param("enabled", "boolean", "true begins, false ends; either forgets what was noted", required=True),),
    ),
    # touching
    Command(
        "tap", "POST", "/tap", "Tap a place or an element of the screen",
        (_X, _Y, _NODE, _number("duration_ms", "how long, in milliseconds")),
    ),
    Command(
        "tap_text", "POST", "/tap_text", "Tap the first element that shows a text",
        (
            _text("text", "what it shows", required=True),
            Param("exact", "boolean", "the whole of its text, not a part"),
        ),
    ),
    Command(
        "long_press", "POST", "/long_press", "Press a place or an element of the screen and hold it",
        (
            _X, _Y, _text("node_id", "an element of the screen, instead of x and y"),
            _number("duration", "how long, 100 to 3000 milliseconds"),
        ),
    ),
    Command(
        "type", "POST", "/type", "Type into the field that has the focus",
        (
            _text("text", "what to type", required=True, private=True),
            Param("clearFirst", "boolean", "empty the field first"),
        ),
    ),
    Command("swipe", "POST", "/swipe", "Swipe from one place of the screen to another", _strokes("swipe")),
    Command("drag", "POST", "/drag", "Drag what is at one place of the screen to another", _strokes("drag")),
    Command(
        "scroll", "POST", "/scroll", "Scroll the screen, or one element of it",
        (
            Param("direction", "string", "where to", required=True, choices=("up", "down", "left", "right")),
            _text("nodeId", "the element to scroll"),
        ),
    ),
    Command(
        "press_key", "POST", "/press_key", "Press a key of the phone",
        (_text("key", "such as back, home, recents, enter, delete, volume_up, notifications", required=True),),
    ),
    Command(
        "open_app", "POST", "/open_app", "Open an app",
        (_text("package", "its package name, such as com.android.chrome; get_apps lists them", required=True),),
    ),
    Command("return_to_hermes", "POST", "/return_to_hermes", "Bring the relay's own app back to the foreground"),
    Command(
        "wait", "POST", "/wait", "Wait for a time, such as for an app to open",
        (_number("ms", "milliseconds", required=True),),
    ),
    Command("setup", "POST", "/setup", "What older tools call to set the bridge up"),
    # what else a phone has
    Command("clipboard_read", "GET", "/clipboard", "What is in the clipboard", untrusted=True),
    Command(
        "clipboard_write", "POST", "/clipboard", "Put a text into the clipboard",
        (_text("text", "the text", required=True, private=True),),
    ),
    Command(
        "media", "POST", "/media", "Control what is playing",
        (
            Param("action", "string", "what to do", required=True,
                  choices=("play", "pause", "toggle", "next", "previous")),
        ),
    ),
    Command("location", "GET", "/location", "Where the phone is"),
    Command(
        "search_contacts", "POST", "/search_contacts", "Look for people in the contacts",
        (_text("query", "a part of the name", required=True), _number("limit", "how many at most; 20 if unsaid")),
        untrusted=True,
    ),
    # what reaches others
    Command(
        "send_sms", "POST", "/send_sms", "Send a text message (SMS)",
        (
            _text("to", "the number", required=True),
            _text("body", "the text", required=True, private=True),
        ),
        destructive=True,
    ),
    Command(
        "send_mms", "POST", "/send_mms", "Send a message with files (MMS)",
        (
            _text("to", "the number", required=True), _text("body", "the text", private=True), _FILES,
            _text("package", "the app to send it with"),
        ),
        destructive=True,
    ),
    Command(
        "call", "POST", "/call", "Call a number", (_text("number", "the number", required=True),), destructive=True
    ),
    Command(
        "share_media", "POST", "/share_media", "Share a text or files with another app",
        (_text("text", "the text", private=True), _text("title", "the title"), _FILES), destructive=True,
    ),
    Command(
        "send_intent", "POST", "/send_intent", "Start an activity of an app by an Android intent",
        (
            _text("action", "such as android.intent.action.VIEW", required=True), _text("data", "a URI"),
            _text("package", "the app"), _text("component", "its component"), _text("category", "a category"), _EXTRAS,
        ),
        destructive=True,
    ),
    Command(
        "broadcast", "POST", "/broadcast", "Send an Android broadcast intent",
        (
            _text("action", "such as com.example.ACTION", required=True), _text("data", "a URI"),
            _text("package", "the app"), _EXTRAS,
        ),
        destructive=True,
    ),
)  # fmt: skip

BY_NAME: Mapping[str, Command] = {command.name: command for command in COMMANDS}
