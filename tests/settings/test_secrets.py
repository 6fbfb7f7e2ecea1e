"""Secrets in files of their own, as Docker, Kubernetes and systemd hand them over."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import Misconfigured
from app.settings import describe_settings, load_settings, unknown_settings

SECRETS = [setting.name for setting in describe_settings({}, Path("/nonexistent/.env")) if setting.secret]
VALUE = "a-secret-of-the-test-0123456789"


@pytest.fixture
def dotenv(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def held(name: str, environ: dict[str, str], dotenv: Path) -> str | None:
    settings, field = load_settings(environ, dotenv), name.removeprefix("TALARIA_").lower()
    found = next(
        value for group in settings.__dict__.values() if (value := getattr(group, field, ...)) is not ...
    )  # fmt: skip
    return None if found is None else str(found.get_secret_value())


@pytest.mark.parametrize("name", SECRETS)
def test_each_may_lie_in_a_file(name: str, tmp_path: Path, dotenv: Path) -> None:
    (tmp_path / "secret").write_text(f"{VALUE}\n")
    environ = {f"{name}_FILE": str(tmp_path / "secret")}
    assert held(name, environ, dotenv) == VALUE
    assert held(name, environ | {name: ""}, dotenv) == VALUE, "a name without a value, as compose files write it, won"
    (shown,) = [one for one in describe_settings(environ, dotenv) if one.name == name]
    assert (shown.value, shown.source) == ("(set)", "file")
    assert unknown_settings(environ, dotenv) == []
    dotenv.write_text(f"{name}=of-the-dotenv\n")
    assert held(name, environ, dotenv) == VALUE, "the environment counts before the .env"
    assert held(name, environ | {name: "said"}, dotenv) == "said"
    assert held(name, {name: ""}, dotenv) is None


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, dotenv: Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Misconfigured, match=f"TALARIA_HERMES_API_KEY_FILE: {path}"):
        load_settings({"TALARIA_HERMES_API_KEY_FILE": str(path)}, dotenv)
