"""`talaria serve`: the relay."""

from __future__ import annotations

import signal
from types import FrameType

from app import __version__
from app.cli.show import complain, say
from app.logs import configure, register_secret
from app.settings import Settings, load_settings, unknown_settings


def serve() -> None:
    """Run the relay. Settings come from the environment and from .env; `talaria config` shows them."""
    settings = load_settings()
    prepare(settings)
    warn(settings)
    from app.server.serving import run

    with Stoppable() as stop:

        def ready(url: str) -> None:
            stop.serving = True
            say(banner(settings, url))

        run(settings, on_ready=ready)


def prepare(settings: Settings) -> None:
    configure(settings.logs)
    hermes = settings.hermes
    secrets = (hermes.hermes_api_key, hermes.hermes_dashboard_token, hermes.hermes_dashboard_password)
    for secret in filter(None, secrets):
        register_secret(secret.get_secret_value())


def warn(settings: Settings) -> None:
    """What is most often a mistake, said before it can be missed."""
    for name in unknown_settings():
        complain(f"{name} is no setting of Talaria: nothing reads it")
    if settings.server.trust_loopback:
        complain(
            "TALARIA_TRUST_LOOPBACK=1: every program on this machine, the agent's own too, may pair and revoke phones"
        )
    if settings.ssh.ssh_host and settings.terminal.terminal_backend == "local":
        complain("TALARIA_SSH_HOST is set, but shells run on this host: set TALARIA_TERMINAL_BACKEND=ssh to use it")
    if settings.server.public_url is None:
        complain("TALARIA_PUBLIC_URL is not set: only this machine can use what `talaria pair` prints")
    elif settings.server.public_url.startswith("http:"):
        complain("TALARIA_PUBLIC_URL is not https: everybody on the way can read and change what is said")


def banner(settings: Settings, url: str) -> str:
    """Where it listens and what stands behind it. Holds no secret and no host of others: it is in everybody's logs."""
    hermes = settings.hermes
    upstream = _routes("TALARIA_HERMES_API", hermes.hermes_api_url, hermes.hermes_api_remote_url)
    if not upstream.startswith("switched") and hermes.hermes_api_key is None:
        upstream += ", without a key (TALARIA_HERMES_API_KEY)"
    dashboard = _routes("TALARIA_HERMES_DASHBOARD", hermes.hermes_dashboard_url, hermes.hermes_dashboard_remote_url)
    return (
        f"Talaria {__version__} listens on {url}\n"
        f"  phones use  {settings.server.public_url or 'no public URL'}\n"
        f"  Hermes API  {upstream}\n"
        f"  dashboard   {dashboard}\n"
        f"  data        {settings.server.data_dir.absolute()}"
    )


def _routes(prefix: str, local: str, remote: str) -> str:
    if local and remote:
        return f"at {prefix}_URL, else at {prefix}_REMOTE_URL"
    if not (local or remote):
        return f"switched off ({prefix}_URL is empty)"
    return f"at {prefix}_URL" if local else f"at {prefix}_REMOTE_URL"


class Stoppable:
    """Ctrl-C and SIGTERM end a relay that serves cleanly, with exit status 0.

    uvicorn stops at the signal and then raises it once more for whoever was there before: that is this, which takes
    it quietly, so that the database is closed in peace. Before there is a server, and at a second signal, it ends.
    """

    def __init__(self) -> None:
        self.serving = False

    def __enter__(self) -> Stoppable:
        self._before = {number: signal.signal(number, self._raised) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _raised(self, number: int, _frame: FrameType | None) -> None:
        if not self.serving:
            raise SystemExit(128 + number)
        self.serving = False
