"""Write the generated tables of the documentation from the code: `python -m deploy.tables`.

A page marks their place with `<!-- table: NAME -->` and `<!-- end -->`. tests/test_docs.py fails when a page is stale.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import app
from app.bridge.commands import COMMANDS
from app.errors import RelayError
from app.push import fcm, ntfy, webpush
from app.push.answers import COMMON, Meaning, meaning
from app.push.provider import Verdict
from app.settings import describe_settings

HERE = Path(__file__).parent
PAGES = (HERE / "protocol.md", HERE / "configuration.md", HERE / "push.md")


def import_everything() -> None:
    """So that subclasses and registrations in every module are known."""
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if not module.name.startswith("app._") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def errors() -> str:
    rows: dict[str, tuple[str, ...]] = {}
    for cls in _subclasses(RelayError):
        close, retry = str(cls.close_code or ""), "yes" if cls.retryable else "no"
        # The first with a code explains it: a subclass without one of its own looks the same from outside.
        meaning = _first_line(cls.__doc__)
        rows.setdefault(cls.code, (f"`{cls.code}`", str(cls.http_status), cls.layer, retry, close, meaning))
    return _table(("code", "HTTP", "layer", "retry", "close", "meaning"), [rows[code] for code in sorted(rows)])


def settings() -> str:
    rows = []
    for setting in describe_settings({}, Path("/nonexistent/.env")):
        also = " Also as `…_FILE`." if setting.secret else ""
        value = {"True": "1", "False": "0"}.get(setting.value, setting.value)
        default = f"`{value}`" if value and not setting.secret else ""
        text = setting.description[:1].upper() + setting.description[1:]
        rows.append((f"`{setting.name}`", default, text.rstrip(".") + "." + also))
    return _table(("setting", "default", "meaning"), rows)


CONSEQUENCES = {
    Verdict.SENT: "done", Verdict.LATER: "again later", Verdict.BLOCKED: "again each hour",
    Verdict.DROPPED: "given up", Verdict.SHRINK: "again at once, shorter", Verdict.GONE: "target retired",
}  # fmt: skip


def push() -> str:
    """Each answer by each provider, as the relay looks it up."""
    providers = {"ntfy": ntfy.ANSWERS, "Web Push, UnifiedPush": webpush.ANSWERS, "FCM": fcm.ANSWERS}
    statuses = {key for table in (COMMON, *providers.values()) for key in table if isinstance(key, int)}
    named = [key for key in COMMON if isinstance(key, str) and not key.endswith("xx")]
    keys: list[int | str] = ["2xx", "3xx", *sorted(statuses), "4xx", "5xx", *named]
    rows: list[tuple[str, ...]] = []
    for key in keys:
        cells = [_consequence(meaning(key, own)) for own in providers.values()]
        rows.append((f"`{key}`", *(cells if len(set(cells)) > 1 else [cells[0], *["the same"] * (len(cells) - 1)])))
    rows += [(f"`{key}`", "", "", _consequence(m)) for key, m in fcm.ANSWERS.items() if isinstance(key, str)]
    return _table(("answer", *providers), rows)


def _consequence(found: Meaning) -> str:
    return f"**{CONSEQUENCES[found.verdict]}** (`{found.code}`): {found.what}"


def bridge() -> str:
    """The commands to a phone, and the routes of the same names."""
    rows = []
    for command in COMMANDS:
        args = ", ".join(param.name + ("" if param.required else "?") for param in command.params)
        marks = [*(["needs an approval"] if command.destructive else []), *(["untrusted"] if command.untrusted else [])]
        said = f"{command.summary}{''.join(f' ({mark})' for mark in marks)}"
        rows.append((f"`{command.method} {command.path}`", f"`{command.name}`", f"`{{{args}}}`" if args else "", said))
    return _table(("route", "command", "arguments", "what the phone does"), rows)


TABLES: dict[str, Callable[[], str]] = {"errors": errors, "settings": settings, "push": push, "bridge": bridge}


def rendered(page: str) -> str:
    """The page with its tables as the code has them."""

    def fill(mark: re.Match[str]) -> str:
        return f"<!-- table: {mark[1]} -->\n{TABLES[mark[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table: ([\w-]+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)


def _subclasses(cls: type[RelayError]) -> Iterator[type[RelayError]]:
    yield cls
    for sub in cls.__subclasses__():
        yield from _subclasses(sub)


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


def main() -> None:
    import_everything()
    for page in PAGES:
        page.write_text(rendered(page.read_text()))


if __name__ == "__main__":
    main()
