"""The plugin in a Hermes home: put there, and taken away so that the home is as it was before."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.client import CommandFailed
from app.cli.hermes_files import PLUGIN, config_with, config_without, env_with, env_without, has_server

SIGNS = ("config.yaml", ".env", "state.db")  # a Hermes home has at least one of them


def plugin_files() -> Path:
    """In a wheel they lie inside the package, in a checkout in deploy/."""
    packed = Path(__file__).parent.parent / "_hermes_plugin"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "deploy" / "hermes_plugin"


@dataclass(frozen=True, slots=True)
class HermesHome:
    """`path` is HERMES_HOME. Beside the plugin's spool, in `talaria/`, lies what the files were before."""

    path: Path

    @property
    def plugin(self) -> Path:
        return self.path / "plugins" / PLUGIN

    @property
    def state(self) -> Path:
        return self.path / PLUGIN

    def check(self) -> None:
        """Raises CommandFailed."""
        if not self.path.is_dir():
            raise CommandFailed(f"there is no Hermes home at {self.path}. Name it with --hermes-home")
        if not any((self.path / name).exists() for name in SIGNS):
            raise CommandFailed(
                f"{self.path} is no Hermes home: it has no config.yaml. Run `hermes setup` first, or name the right one"
                " with --hermes-home"
            )
        if not os.access(self.path, os.W_OK):
            raise CommandFailed(f"{self.path} cannot be written: run this command as the user that runs Hermes")

    def has_server(self) -> bool:
        """Whether its configuration names the relay's tools. Raises CommandFailed."""
        return has_server(self._read("config.yaml") or "")

    def install(self, env: Mapping[str, str], mcp_url: str | None = None) -> None:
        """Files, settings and token, and the relay's tools where there is a URL of them. A second time it renews them.
        Raises CommandFailed.
        """
        self.check()
        config = self._plan("config.yaml", lambda text: config_with(text, mcp_url), config_without)
        dotenv = self._plan(".env", lambda text: env_with(text, env), lambda text, _: env_without(text))
        self._make(self.state, 0o700)
        self._copy_plugin()
        for change in (config, dotenv):
            self._save(change)

    def uninstall(self) -> bool:
        """Whether there was anything to undo. Raises CommandFailed."""
        self.check()
        if not self.plugin.exists() and not self.state.exists():
            return False
        self._undo("config.yaml", config_without)
        self._undo(".env", lambda text, _: env_without(text))
        shutil.rmtree(self.plugin, ignore_errors=True)
        if (self.state / "made-plugins").exists():
            with suppress(OSError):  # somebody else has put a plugin there since
                self.plugin.parent.rmdir()
        shutil.rmtree(self.state, ignore_errors=True)
        return True

    def waiting(self) -> int:
        """Messages of the agent that the relay has not got yet."""
        spool = self.state / "spool.db"
        if not spool.exists():
            return 0
        import sqlite3

        try:
            with closing(sqlite3.connect(spool)) as db:
                return int(db.execute("SELECT count(*) FROM outbox").fetchone()[0])
        except sqlite3.Error:
            return 0

    def others(self) -> list[str]:
        """Plugins in the home beside ours."""
        folder = self.path / "plugins"
        return sorted(p.name for p in folder.glob("*/") if p.name != PLUGIN) if folder.is_dir() else []

    # the files

    def _plan(
        self, name: str, with_us: Callable[[str], str], without: Callable[[str, str], str]
    ) -> tuple[str, str | None, str]:
        """(name, what it was before us, what it becomes)."""
        text = self._read(name)
        before = self._before(name, text, without)
        return name, before, with_us(before or "")

    def _before(self, name: str, text: str | None, without: Callable[[str, str], str]) -> str | None:
        """The file without us: as it was, if nobody has changed it since, else as it is now without our words."""
        kept = self.state / f"{name}.before"
        if text is None or name not in self._record():
            return text
        was = kept.read_text() if kept.exists() else None
        if self._record()[name]["digest"] == digest(text):
            return was
        return without(text, was or "")

    def _undo(self, name: str, without: Callable[[str, str], str]) -> None:
        text = self._read(name)
        if text is None:
            return
        before = self._before(name, text, without)
        if before is None:
            (self.path / name).unlink()
        else:
            self._write(self.path / name, before, self._record().get(name, {}).get("mode"))

    def _save(self, change: tuple[str, str | None, str]) -> None:
        """What it was goes to disk before it becomes something else."""
        name, before, after = change
        kept, record = self.state / f"{name}.before", self.state / "installed.json"
        if before is None:
            kept.unlink(missing_ok=True)
        else:
            self._write(kept, before, 0o600)
        known, file = self._record(), self.path / name
        mode = known.get(name, {}).get("mode") or (file.stat().st_mode & 0o777 if file.exists() else None)
        self._write(record, json.dumps(known | {name: {"digest": digest(after), "mode": mode}}), 0o600)
        if after != self._read(name):
            self._write(self.path / name, after, 0o600 if name == ".env" else None)

    def _record(self) -> dict[str, Any]:
        """Of each file: what it became, and the mode that it had."""
        path = self.state / "installed.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def _copy_plugin(self) -> None:
        """Beside the old one first, so that Hermes never finds half of it."""
        folder = self.plugin.parent
        if not folder.exists():
            self._make(folder, 0o755)
            self._write(self.state / "made-plugins", "", 0o600)
        fresh = Path(tempfile.mkdtemp(prefix=".talaria-", dir=self.state))
        try:
            shutil.copytree(
                plugin_files(), fresh, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
            )
            fresh.chmod(0o755)
            self._own(fresh, *fresh.rglob("*"))
            shutil.rmtree(self.plugin, ignore_errors=True)
            fresh.rename(self.plugin)
        except OSError as exc:
            raise CommandFailed(f"{self.plugin} cannot be written: {exc.strerror or exc}") from None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _read(self, name: str) -> str | None:
        try:
            return (self.path / name).read_bytes().decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as exc:
            raise CommandFailed(f"{self.path / name} cannot be read: {exc}") from None

    def _write(self, path: Path, text: str, mode: int | None = None) -> None:
        """In one step, at the end of a link too. `mode` None keeps the file's own, else 0600."""
        target = path.resolve()
        try:
            chosen = mode if mode is not None else target.stat().st_mode & 0o777 if target.exists() else 0o600
            descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(descriptor)
            os.chmod(name, chosen)
            self._own(Path(name))
            os.replace(name, target)
        except OSError as exc:
            raise CommandFailed(f"{path} cannot be written: {exc.strerror or exc}") from None

    def _make(self, folder: Path, mode: int) -> None:
        try:
            folder.mkdir(mode=mode, exist_ok=True)
        except OSError as exc:
            raise CommandFailed(f"{folder} cannot be made: {exc.strerror or exc}") from None
        self._own(folder)

    def _own(self, *paths: Path) -> None:
        """Installed by root, it belongs to whoever Hermes runs as."""
        if os.geteuid() == 0:
            status = self.path.stat()
            for path in paths:
                os.chown(path, status.st_uid, status.st_gid)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
