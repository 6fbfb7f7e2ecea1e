"""Logging: what every `logging` logger of the process writes goes through one handler and one redaction.

The project logs with the standard library, `logging.getLogger("talaria.<room>")` and `extra={…}`; `bind` adds fields to
everything logged inside it. `configure` takes over the loggers of the libraries as well.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, TextIO

import structlog
from structlog.typing import EventDict, Processor

from app.logs.failures import describe_failure
from app.logs.redaction import Cleaner, clean_text, register_secret

__all__ = ["bind", "configure", "register_secret"]

# What they log at INFO is every request's URL, and upstream sockets carry `?token=`.
_QUIET = ("httpx", "httpcore", "websockets", "hpack", "multipart", "asyncio", "asyncssh", "mcp", "sse_starlette")
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}
_RESERVED = {"ts", "level", "logger", "event", "exception", "stack", "exc_info", "stack_info"}


class LogChoice(Protocol):
    """What `settings.LogSettings` says, which lies on this package's own level."""

    @property
    def log_level(self) -> str: ...
    @property
    def log_format(self) -> str: ...


def configure(settings: LogChoice, stream: TextIO | None = None) -> None:
    """Take over every logger. `stream` defaults to standard error; colour only where that is a terminal."""
    stream = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    handler = _Handler(stream)
    handler.setFormatter(_Formatter(processors=[_collect, *_renderer(settings.log_format, stream)]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # The libraries' own chatter (alembic's, uvicorn's banner) is for who debugs.
    root.setLevel(logging.INFO if level == logging.DEBUG else max(level, logging.WARNING))
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of every upload that is none
    logging.getLogger("talaria").setLevel(level)
    access = logging.getLogger("uvicorn.access")
    access.propagate, access.disabled = False, True
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda args: _uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def bind(**fields: object) -> AbstractContextManager[None]:
    """`with bind(request_id=…):` adds the fields to whatever this task logs inside; None is left out."""
    return structlog.contextvars.bound_contextvars(**{k: v for k, v in fields.items() if v is not None})


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        """The standard one prints the record's arguments as they are. The stream is gone: there is nobody to tell."""


class _Formatter(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        try:
            kept = {k: v for k, v in vars(record).items() if not k.startswith("_")}  # structlog trusts its own marks
            safe = logging.makeLogRecord(kept | {"msg": _message(record), "args": (), "exc_text": None})
            return super().format(safe)
        except Exception as exc:
            return f"{record.levelname} {record.name} a log record could not be rendered: {type(exc).__name__}"


def _message(record: logging.LogRecord) -> str:
    """The message with its arguments, each cleaned on its own first: only there is a dict still a dict."""
    if not record.args:
        return _text(record.msg)
    cleaner = Cleaner()
    given: Any = record.args  # a tuple, or the one mapping that was given
    args = cleaner.clean(given) if isinstance(given, Mapping) else tuple(cleaner.clean(arg) for arg in given)
    try:
        return clean_text(str(record.msg) % args)
    except Exception:  # arguments that do not fit the format
        return clean_text(f"{_text(record.msg)} {args!r}")


def _text(message: object) -> str:
    return message if type(message) is str else str(Cleaner().clean(message))


def _collect(_logger: object, _method: str, event: EventDict) -> EventDict:
    """The whole record as what may be shown. Nothing that comes after this adds to it."""
    record: logging.LogRecord = event["_record"]
    cleaner = Cleaner()
    shown: EventDict = {
        "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": clean_text(record.name, 128),
        "event": clean_text(event["event"]),
    }
    extra = {k: v for k, v in vars(record).items() if k not in _OWN and not k.startswith("_")}
    for name, value in (structlog.contextvars.get_contextvars() | extra).items():
        said = clean_text(str(name), 64)
        shown[f"{said}_" if said in _RESERVED else said] = cleaner.clean(value, str(name))
    if record_exc := event.get("exc_info"):
        shown["exception"] = describe_failure(record_exc)
    if stack := event.get("stack_info"):
        shown["stack"] = clean_text(str(stack), 4096, keep_lines=True)
    return shown


def _renderer(format_: str, stream: TextIO) -> list[Processor]:
    if format_ == "json":
        return [structlog.processors.JSONRenderer()]
    return [
        _indent,
        structlog.dev.ConsoleRenderer(
            colors=stream.isatty(),
            timestamp_key="ts",
            sort_keys=False,
            pad_event_to=0,
            exception_formatter=structlog.dev.plain_traceback,
        ),
    ]


def _indent(_logger: object, _method: str, event: EventDict) -> EventDict:
    """So that no line of an exception's text can pass for a record of its own."""
    for key in ("exception", "stack"):
        if key in event:
            event[key] = "\n".join(f"  | {line}" for line in event[key].split("\n"))
    return event


def _uncaught(kind: type[BaseException], exc: BaseException | None, traceback: TracebackType | None) -> None:
    if exc is None or issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger("talaria").critical("uncaught exception", exc_info=(kind, exc, traceback))
