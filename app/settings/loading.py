"""Reads the environment, alone in this program.

A setting is `TALARIA_<NAME>`; a secret may also come from the file that `TALARIA_<NAME>_FILE` names. A `.env` beside
the process is read; the environment wins over it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from app.errors import Misconfigured
from app.settings.groups import Group, Settings, parse_duration, show_duration

PREFIX = "TALARIA_"


class Setting(BaseModel):
    """One line of `talaria config` and of the configuration page."""

    name: str
    value: str
    source: str  # environment, file, .env or default
    description: str
    secret: bool


def load_settings(environ: Mapping[str, str] | None = None, dotenv: Path = Path(".env")) -> Settings:
    """Raises Misconfigured naming each setting that cannot be used. Values of secrets are never repeated."""
    found = _collect(os.environ if environ is None else environ, dotenv)
    groups: dict[str, Group] = {}
    problems: list[str] = []
    for group, model in _groups().items():
        given = {field: found[_env(field)][0] for field in model.model_fields if _env(field) in found}
        try:
            groups[group] = model(**given)
        except ValidationError as exc:
            problems += [f"{_env(str(e['loc'][0]))}: {_said(e)}" for e in exc.errors()]
    if problems:
        raise Misconfigured("; ".join(problems))
    return Settings(**groups)  # type: ignore[arg-type]


def describe_settings(environ: Mapping[str, str] | None = None, dotenv: Path = Path(".env")) -> list[Setting]:
    """Every setting with the value in force and where it came from; secrets read `(set)` or `(unset)`."""
    environ = os.environ if environ is None else environ
    found, settings = _collect(environ, dotenv), load_settings(environ, dotenv)
    rows = []
    for group, model in _groups().items():
        for field, info in model.model_fields.items():
            value, secret = getattr(getattr(settings, group), field), _is_secret(field, model)
            shown = ("(set)" if value else "(unset)") if secret else _show(value, info)
            source = found[_env(field)][1] if _env(field) in found else "default"
            rows.append(
                Setting(name=_env(field), value=shown, source=source, description=info.description or "", secret=secret)
            )
    return rows


def unknown_settings(environ: Mapping[str, str] | None = None, dotenv: Path = Path(".env")) -> list[str]:
    """TALARIA_ variables that nothing reads: most often a typing error. Raises Misconfigured."""
    known = {_env(field) for model in _groups().values() for field in model.model_fields}
    known |= {
        _env(field) + "_FILE"
        for model in _groups().values()
        for field in model.model_fields
        if _is_secret(field, model)
    }
    given = _beside(dotenv).keys() | (os.environ if environ is None else environ).keys()
    return sorted(name for name in given if name.startswith(PREFIX) and name not in known)


def inherited_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What programs that the relay starts may see of its environment: nothing of its own."""
    environ = os.environ if environ is None else environ
    return {name: value for name, value in environ.items() if not name.startswith(PREFIX)}


def _collect(environ: Mapping[str, str], dotenv: Path) -> dict[str, tuple[str, str]]:
    """Name → (value, source)."""
    beside = _beside(dotenv)
    found: dict[str, tuple[str, str]] = {}
    for source, values in ((".env", beside), ("environment", environ)):
        for model in _groups().values():
            for field in model.model_fields:
                name = _env(field)
                file = values.get(name + "_FILE") if _is_secret(field, model) else None
                if file and not values.get(name):  # a name without a value is no choice
                    found[name] = (_read_secret(name + "_FILE", file), "file")
                elif name in values:
                    found[name] = (values[name], source)
    return {name: (value, source) for name, (value, source) in found.items() if value != "" or name in _MAY_BE_EMPTY}


def _beside(dotenv: Path) -> dict[str, str]:
    """What the `.env` sets. Raises Misconfigured where it cannot be read, or a line sets nothing."""
    try:
        text = dotenv.read_text("utf-8") if dotenv.is_file() else ""
    except PermissionError:
        raise Misconfigured(
            f"{dotenv.absolute()} cannot be read as uid {os.getuid()}: run this in another directory, or as its owner"
        ) from None
    except (OSError, UnicodeDecodeError) as exc:
        raise Misconfigured(f"{dotenv.absolute()} cannot be read: {exc}") from None
    wrong = [str(line.original.line) for line in parse_stream(StringIO(text)) if line.error]
    if wrong:
        raise Misconfigured(
            f"{dotenv.absolute()}: line {', '.join(wrong)} cannot be read: it must be NAME=value, with quotes closed"
        )
    return {name: value for name, value in dotenv_values(stream=StringIO(text)).items() if value is not None}


_MAY_BE_EMPTY = {
    "TALARIA_HERMES_API_URL",
    "TALARIA_HERMES_DASHBOARD_URL",
    "TALARIA_NTFY_URL",
}  # empty means off; elsewhere empty means unset, as compose files write it


def _read_secret(name: str, path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as exc:
        raise Misconfigured(f"{name}: {path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise Misconfigured(f"{name}: {path} holds no text") from None


def _groups() -> dict[str, type[Group]]:
    return {name: type(info.default) for name, info in Settings.model_fields.items()}


def _env(field: str) -> str:
    return PREFIX + field.upper()


def _is_secret(field: str, model: type[Group]) -> bool:
    return "SecretStr" in str(model.model_fields[field].annotation)


def _show(value: Any, info: FieldInfo) -> str:
    if any(isinstance(one, BeforeValidator) and one.func is parse_duration for one in info.metadata):
        return show_duration(value)
    if isinstance(value, bool):
        return str(int(value))  # as it is written
    return ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)


def _said(error: ErrorDetails) -> str:
    return "it must be 1 or 0" if error["type"] == "bool_parsing" else error["msg"].removeprefix("Value error, ")
