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
from app.errors import RelayError
from app.settings import describe_settings

HERE = Path(__file__).parent
PAGES = (HERE / "protocol.md", HERE / "configuration.md")


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


TABLES: dict[str, Callable[[], str]] = {"errors": errors, "settings": settings}


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
