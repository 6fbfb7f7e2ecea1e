"""`talaria backup` and `talaria restore`: everything that a relay must not lose, in one file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from time import sleep
from typing import IO, TYPE_CHECKING, Annotated

import typer

from app.cli.client import CommandFailed, RelayClient, RelayRefused, own_url
from app.cli.show import note, printable, wrapped
from app.clock import Clock
from app.data_dir import InUse, check, held, make
from app.settings import ServerSettings, load_settings

# Below, what knows the database is imported where it is used: it takes 0.4 s, which no other command need spend.
if TYPE_CHECKING:
    from app.backup.archive import Manifest
    from app.backup.restore import Restored

STOPS_WITHIN_S = 30.0
PAUSE_S = 0.1

_File = Annotated[str, typer.Argument(metavar="FILE", help="A path, or - for standard output.")]
_Source = Annotated[str, typer.Argument(metavar="FILE", help="A path, or - for standard input (then with --yes).")]


def backup(file: _File) -> None:
    """Copy the database and the keys into one file, readable by you only; the relay may run meanwhile.

    Whoever has the file can be this relay: keep it as you keep a password. Uploaded files are not in it.
    """
    from app.backup import archive, drafts
    from app.db.files import sqlite_path

    if file == "-" and sys.stdout.isatty():  # also that which Docker makes, whatever the host does with what it shows
        raise CommandFailed(
            "a terminal would spoil the backup: name a file, or send it on by `> FILE` (`docker compose exec -T` then)"
        )
    server = load_settings().server
    database = sqlite_path(server.sqlite_url())
    if os.path.isdir(server.data_dir):
        check(server.data_dir)
    if not os.path.isdir(server.data_dir) or not os.path.isfile(database):
        raise CommandFailed(
            f"there is nothing to back up: no relay has used {server.data_dir.absolute()} yet, as far as uid"
            f" {os.getuid()} can see"
        )
    with ExitStack() as stack:
        to = sys.stdout.buffer if file == "-" else stack.enter_context(drafts.written(Path(file)))
        made = archive.write(server.data_dir, database, to, Clock().now())
        to.flush()
    note(f"Backed up {len(made.digests)} files" + ("." if file == "-" else f" into {file}."))


def restore_command(
    file: _Source, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """Put a backup in the place of what is there, and stop the relay for it.

    Sessions revoked since stay revoked. What was under way at the time of the backup ends as uncertain, codes that were
    open are void, and each phone is told to read again.
    """
    from app.backup import archive, restore
    from app.db.files import sqlite_path

    server = load_settings().server
    make(server.data_dir)
    with _source(file) as source, archive.unpacked(source, server.data_dir) as (files, manifest):
        note(f"This backup is of {_when(manifest)}, made by Talaria {printable(manifest.version)}.")
        if not yes:
            typer.confirm("Put it in the place of what is there?", abort=True, err=True)
        with _stopped(server):
            done = restore.put_back(files, manifest, server.data_dir, sqlite_path(server.sqlite_url()), Clock().now())
    _report(done)


@contextmanager
def _source(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        found = open(file, "rb")  # noqa: SIM115 - closed below, where what others raise is theirs to explain
    except FileNotFoundError:
        raise CommandFailed(f"there is no file {file}") from None
    except OSError as exc:
        raise CommandFailed(f"{file} cannot be read as uid {os.getuid()}: {exc.strerror}") from None
    with found:
        yield found


@contextmanager
def _stopped(server: ServerSettings) -> Iterator[None]:
    """With the data directory held. Raises CommandFailed, Misconfigured."""
    with ExitStack() as stack:
        try:
            stack.enter_context(held(server.data_dir))
        except InUse:
            _stop(server)
            note("The relay stops.")
            _hold(stack, server.data_dir)
        yield


def _stop(server: ServerSettings) -> None:
    """Raises CommandFailed."""
    url = own_url(server)
    try:
        with RelayClient(server.data_dir, url) as relay:
            relay.post("/relay/stop", {})
    except RelayRefused:
        raise
    except CommandFailed:
        raise CommandFailed(
            f"a relay, or another restore, uses {server.data_dir.absolute()}, and no relay of that directory can be"
            f" reached at {url}: stop it yourself (`docker compose stop relay`, or by systemctl), then restore again"
        ) from None


def _hold(stack: ExitStack, data_dir: Path) -> None:
    clock = Clock()
    until = clock.monotonic() + STOPS_WITHIN_S
    while True:
        try:
            stack.enter_context(held(data_dir))
            return
        except InUse:
            if clock.monotonic() > until:
                raise CommandFailed("the relay does not stop: stop it yourself, then restore again") from None
        sleep(PAUSE_S)


def _report(done: Restored) -> None:
    if done.revived:
        note(wrapped("These sessions were not alive before and are now; `talaria devices revoke` ends one:"))
        for session in done.revived:
            note(f"  {session.prefix}  {printable(session.device)}")
    if done.kept is not None:
        note(wrapped(f"What was there before is kept as {done.kept}; delete it when all is well."))
    note("Restored. Start the relay again: `talaria serve`, `docker compose up -d`, or by systemctl.")


def _when(manifest: Manifest) -> str:
    return datetime.fromtimestamp(manifest.made_at).astimezone().strftime("%Y-%m-%d %H:%M %Z")
