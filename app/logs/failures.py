"""Exceptions as the log shows them: the frames that matter, every cause, no secret, bounded."""

from __future__ import annotations

from traceback import TracebackException

from app.logs.redaction import clean_text

MAX_FRAMES = 12  # of one exception, the innermost
MAX_LINKS = 6  # exceptions of one chain, members of groups included
MAX_TEXT = 4096  # characters of one exception


def describe_failure(exc_info: object) -> str:
    """Causes first, as Python prints them. `exc_info` is what a log record holds."""
    exc = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if not isinstance(exc, BaseException):
        return ""
    return "\n".join(_one(link, relation) for link, relation in reversed(_chain(exc)))


def _chain(exc: BaseException) -> list[tuple[BaseException, str]]:
    """The exception and what led to it, each with what the next line should say."""
    links: list[tuple[BaseException, str]] = []
    waiting = [(exc, "")]
    while waiting and len(links) < MAX_LINKS:
        link, relation = waiting.pop(0)
        if any(link is seen for seen, _ in links):
            continue
        links.append((link, relation))
        if isinstance(link, BaseExceptionGroup):
            waiting += [(member, "which was one of the failures of:") for member in link.exceptions[:3]]
        if link.__cause__ is not None:
            waiting.append((link.__cause__, "which was the cause of:"))
        elif link.__context__ is not None and not link.__suppress_context__:
            waiting.append((link.__context__, "while it was handled:"))
    return links


def _one(exc: BaseException, relation: str) -> str:
    try:
        told = TracebackException(type(exc), exc, exc.__traceback__, limit=-MAX_FRAMES, max_group_depth=1)
        frames, said = "".join(told.stack.format()), "".join(told.format_exception_only())
        frames = f"Traceback (most recent call last):\n{frames}" if frames else ""
    except Exception:  # a hostile __str__ or __getattr__
        frames, said = "", f"{type(exc).__name__} (unprintable)"
    parts = (
        clean_text(frames.rstrip(), MAX_TEXT, keep_lines=True),
        clean_text(said.rstrip(), keep_lines=True),
        relation,
    )
    return "\n".join(part for part in parts if part)
