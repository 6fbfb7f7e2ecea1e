"""What the stand-in says to people."""

from __future__ import annotations

from collections.abc import Sequence

from app.demo.script import Done, Question

WORDS = {
    "tools": "uses two tools on the way to the answer",
    "markdown": "answers with headings, a list, a table and code",
    "slow": "takes about half a minute: lock your phone and come back",
    "long": "writes a few thousand words",
    "unicode": "writes in many scripts, and emoji",
    "fail": "fails the way a model provider does",
    "error": "fails the way a crashed agent does",
    "help": "shows this list",
}

MARKERS = {
    "SAY:text": "answers with exactly this text",
    "WORDS:n": "answers with n numbered words",
    "THINK:text": "thinks this first",
    "PRE:text": "says this before the tools it uses",
    "TOOL:name:argument": "uses this tool",
    "APPROVE:command": "asks for permission to run this",
    "APPROVE2:command|command": "asks for two permissions at once",
    "ASK:question|choice|choice": "asks this",
    "DELAY:ms": "pauses this long before each piece",
    "gated": "waits before the second piece until the gate is opened",
    "reasoning": "has thought first; the session stream shows that in the stored message only, as in Hermes",
    "COMPRESS, moved": "the conversation goes on in another session (compression)",
    "custom": "sends events that nobody knows",
    "keepalive": "sends a keepalive comment",
    "split": "cuts the stream into pieces of 7 bytes",
    "cut:n": "drops the connection after n pieces; the answer is still stored",
    "nodone": "ends the stream after the last piece without saying so",
    "done-only": "ends the stream with `done` alone",
    "lost": "with one of the three above: the answer is not stored",
    "http429, http500, http503": "refuses the request with this status",
    "bench:n:ms[:bytes]": "sends n pieces, ms apart, each with the time it was sent",
}


def _listed(entries: dict[str, str]) -> str:
    return "\n".join(f"- `{word}`: {what}" for word, what in entries.items())


def plain(said: str) -> str:
    quoted = said if len(said) <= 200 else said[:200] + " …"
    return (
        "You said: " + quoted.replace("\n", " ") + "\n\n"
        "I am a **stand-in** for a Hermes Agent. I cannot think and I run nothing, but all between us is real: this "
        "phone, the relay, and the stream that brings you these words. Try one of these:\n\n"
        "- *Clean up the old logs*: I ask for your permission first\n"
        "- *Help me choose a colour*: I ask you something\n"
        "- *Show me your tools*: you see me at work\n\n"
        "`help` lists the rest. When you have seen enough, stop the demo and give the relay a real agent: "
        "`TALARIA_HERMES_API_URL`."
    )


def guide() -> str:
    return (
        "## What can be tried\n\nAsk me to clean up the old logs, or to help you choose. A message that contains one "
        "of these words gets a special answer:\n\n"
        + _listed(WORDS)
        + "\n\nFor tests, and combinable with each other and with the words above. One that takes a text takes it "
        "to the end of the line:\n\n" + _listed(MARKERS)
    )


def tool_said(done: Sequence[Done]) -> str:
    return f"tool said: {done[-1].result[:200]} | done after {len(done)} result(s)"


def chosen(colour: str) -> str:
    if not colour:
        return "You did not say, so I leave the sandals as they are. Ask me again when you like."
    return f"{colour} it is. A good choice: winged sandals should be seen from far away."


def cannot_ask(question: Question) -> str:
    """The question as part of the answer, for where nothing can be asked."""
    return question.text + "".join(f"\n- {choice}" for choice in question.choices)


MARKDOWN = """# A short tour of Markdown

Plain text with **bold**, *italic*, ~~struck out~~, `code` and [a link](https://example.org/).

## A list

1. Put on the sandals.
2. Take the message.
   - Read nothing.
   - Drop nothing.
3. Deliver it **once**.

## A table

| Messenger | Speed | Loses messages |
|:----------|------:|:--------------:|
| Pigeon    |  80 km/h | sometimes |
| Courier   | 110 km/h | rarely |
| Hermes    |        ∞ | never |

## Code

```python
def deliver(message: str, *, attempts: int = 3) -> bool:
    \"\"\"Try a few times, then say so.\"\"\"
    for attempt in range(attempts):
        if knock(message):
            return True
    return False
```

> A quotation, to end with.
"""

UNICODE = (
    "Many scripts, and every one of them may be cut in the middle of a character:\n\n"
    "- Ελληνικά: Ο Ἑρμῆς φορά φτερωτά σανδάλια.\n"
    "- Русский: Сообщение доставлено.\n"
    "- 日本語: 手紙は必ず届きます。\n"
    "- 中文: 信使从不迟到。\n"
    "- 한국어: 소식이 왔습니다.\n"
    "- العربية: وصلت الرسالة.\n"
    "- עברית: ההודעה נמסרה.\n"
    "- हिन्दी: संदेश पहुँच गया।\n"
    "- Français: déjà reçu, à bientôt, ça va.\n"
    "- Emoji: 🪽📨 👩‍🚀 🏳️‍🌈 🎉 ☃"
)

SLOW = (
    "This answer takes its time. Lock your phone now, or close the page, or walk out of reach of your network. "
    "The turn runs on without you: the relay listens to the agent in your place and keeps what it says. When you "
    "come back you get all of it at once, and then the rest word by word. If you stay away until the end, a push "
    "can tell you that the answer is there. Nothing is asked twice and nothing is lost. That was it: welcome back."
)

_PARAGRAPH = (
    "The messenger walks the road between the house and the harbour, and he walks it every day. He carries letters "
    "that he has not read to people whom he does not know. If a door stays closed he comes again; if a letter was "
    "taken he does not bring it twice. In winter the road is slow and in summer it is dusty, yet the letters arrive "
    "in the order in which they were written, because he numbers them before he leaves."
)


def long() -> str:
    """About 3,000 words in 40 numbered sections."""
    return "# The messenger\n\n" + "\n\n".join(f"## Day {day}\n\n{_PARAGRAPH}" for day in range(1, 41))


REASONING = "They want to see reasoning. I should think for a moment, then answer briefly."
THOUGHT = "I have thought about it."
PLAIN_THOUGHT = "They said something I have no answer for. I tell them what I am and what they can try."
FAILED = "HTTP 400: the stand-in was asked to fail, because the message contains the word `fail`"
ERROR = "The stand-in was asked for an error, because the message contains the word `error`"
TOOLS_THOUGHT = "They want to see tools. I run a harmless command first, then I look something up."
TOOLS_BEFORE = "Let me look at this machine first."
TOOLS_BETWEEN = "Now I look up what that name means."
TOOLS_AFTER = "Done. I **ran a command** and **searched the web** (neither was real: a stand-in has no hands)."
CLEAN_UP_COMMAND = "rm -r ~/demo/logs/old"
CLEAN_UP_THOUGHT = "Deleting cannot be undone. I look at what is there, and then I ask before I touch anything."
CLEAN_UP = "There are three old log files, 14 MB together. Deleting cannot be undone, so I ask you first."
CLEANED_UP = "Thank you. The old logs are gone, or would be: a stand-in runs nothing, so nothing was deleted."
CLEAN_UP_ENDS = {
    "deny": "All right, I leave the old logs where they are. Nothing was deleted.",
    "timeout": "Nobody answered in time, so I left the old logs where they are. Silence is never a yes.",
    "pending": (
        "I may not delete anything without your permission, and over this connection nobody can be asked for it, so I "
        "left the old logs where they are. Hermes asks when the relay is connected to its dashboard."
    ),
}
CHOOSE_THOUGHT = "They leave the choice to me, but it is theirs. I ask."
CHOOSE = "Gladly. One question first."
COLOUR = "Which colour should the sandals have?"
COLOURS = ("Gold", "Blue", "Red")
