"""Every setting with its default and what it means, in groups: each room is given its own."""

from __future__ import annotations

import os
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_duration(value: object) -> int:
    """`90`, `10m`, `12h`, `30d` → whole seconds above zero."""
    match = re.fullmatch(r"(\d{1,9})([smhdw]?)", str(value).strip().lower())
    if match is None or int(match[1]) == 0:
        raise ValueError("a duration is a number with s, m, h, d or w, such as 30d")
    return int(match[1]) * _UNITS[match[2] or "s"]


def show_duration(seconds: int) -> str:
    """As it is written, in the largest unit up to days that leaves no rest."""
    unit = next(unit for unit in "dhms" if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _is_url(value: str) -> bool:
    """http or https, a host that can have an address, and nothing after the path."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:  # a port or a name that none can have
        return False
    is_host = re.fullmatch(r"[\w:%-]+(\.[\w-]+)*\.?", host) is not None
    extra = parts.username or parts.query or parts.fragment or re.search(r"\s", value)
    return parts.scheme in ("http", "https") and is_host and not extra


def _origin(value: str) -> str:
    if not _is_url(value):
        raise ValueError("it must look like https://name[:port]")
    parts = urlsplit(value)
    if parts.path not in ("", "/"):
        raise ValueError("a path is not supported: Talaria needs an origin of its own")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _upstream(value: str) -> str:
    if value != "" and not _is_url(value):
        raise ValueError("it must look like http://host:port, or be empty to switch this upstream off")
    return value.rstrip("/")


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Seconds = Annotated[int, BeforeValidator(parse_duration)]


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerSettings(Group):
    """Where the relay listens and which names it answers to."""

    data_dir: Path = Field(Path("data"), description="where the database and the keys live")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8767, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    public_url: str | None = Field(
        None, description="the https origin that phones use, such as https://home.tailnet.ts.net"
    )
    allowed_hosts: Names = Field((), description="further Host values to answer to, comma separated")
    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_split)] = Field(
        (), description="CIDRs of proxies whose X-Forwarded-For is believed"
    )
    trust_loopback: bool = Field(
        False, description="let host tools written for hermes-relay call its loopback routes without a token"
    )
    database_url: str | None = Field(None, description="SQLAlchemy URL; default: talaria.db in the data directory")

    @field_validator("public_url")
    @classmethod
    def _public(cls, value: str | None) -> str | None:
        return _origin(value) if value else None

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _networks(cls, value: object) -> object:
        return tuple(ip_network(v, strict=False) if isinstance(v, str) else v for v in _split(value))  # type: ignore[attr-defined]

    def sqlite_url(self) -> str:
        return self.database_url or f"sqlite:///{(self.data_dir / 'talaria.db').absolute()}"


class SessionSettings(Group):
    """How long a paired phone stays paired."""

    session_ttl: Seconds = Field(30 * 86400, description="life of a device session")
    pairing_confirm: bool = Field(
        False, description="the operator confirms each device that redeems a code, by six digits on both sides"
    )


class MailboxSettings(Group):
    """How long, and how much of, what must arrive is kept for a phone that is away."""

    mailbox_max_age: Seconds = Field(30 * 86400, description="how long a message waits for a phone")
    mailbox_max_count: int = Field(
        20_000, ge=100, description="messages that wait for one phone; beyond it, new ones are refused"
    )


class HermesSettings(Group):
    """The agent behind the relay."""

    hermes_api_url: str = Field("http://127.0.0.1:8642", description="Hermes API server; empty switches it off")
    hermes_api_remote_url: str = Field(
        "", description="the same API server by another way, https; used while the first URL does not answer"
    )
    hermes_api_key: SecretStr | None = Field(None, description="its API_SERVER_KEY, 16 characters at least")
    hermes_dashboard_url: str = Field(
        "http://127.0.0.1:9119", description="Hermes dashboard, for live reasoning and approvals; empty switches it off"
    )
    hermes_dashboard_remote_url: str = Field(
        "", description="the same dashboard by another way, https; used while the first URL does not answer"
    )
    hermes_dashboard_token: SecretStr | None = Field(
        None, description="its HERMES_DASHBOARD_SESSION_TOKEN; on loopback it is read from its page if this is unset"
    )
    hermes_dashboard_username: str | None = Field(None, description="who logs in to a dashboard that wants a login")
    hermes_dashboard_password: SecretStr | None = Field(None, description="the password of that login")
    hermes_ask_approvals: bool = Field(
        False, description="without a dashboard, run turns in the way that asks for approvals (/v1/runs)"
    )
    hermes_approval_timeout: Seconds = Field(
        60, description="its approvals.timeout, for where Hermes does not tell it: a later answer is not sent"
    )
    hermes_body_max_mb: int = Field(
        1024, ge=1, description="size of one request that is passed on to its API, in MiB; Hermes takes less of most"
    )
    hermes_answer_timeout: Seconds = Field(
        3600, description="how long it may work on a request that is passed on before its answer begins"
    )
    hermes_allow_plain: Names = Field((), description="hosts that may get a credential over http, besides loopback")

    @field_validator("hermes_api_url", "hermes_api_remote_url", "hermes_dashboard_url", "hermes_dashboard_remote_url")
    @classmethod
    def _url(cls, value: str) -> str:
        return _upstream(value)


class PushSettings(Group):
    """How a sleeping phone is woken. Web Push and UnifiedPush need nothing; deploy/push.md says what the others do."""

    ntfy_url: str = Field(
        "https://ntfy.sh", description="ntfy server of the devices that use one; empty switches it off"
    )
    ntfy_token: SecretStr | None = Field(None, description="access token of that server, where it wants one")
    vapid_subject: str | None = Field(
        None, description="who push services of browsers may write to, mailto: or https:; default: the public URL"
    )
    fcm_credentials: Path | None = Field(
        None, description="key file of a Firebase service account; only for an app with a Firebase project of its own"
    )
    push_content: Literal["none", "title", "full"] = Field(
        "none", description="what a push says: that there is something, its title, or its text too"
    )
    push_allow: Names = Field(
        (), description="hosts, addresses and networks outside the public internet that devices may be pushed through"
    )

    @field_validator("ntfy_url")
    @classmethod
    def _ntfy(cls, value: str) -> str:
        return _upstream(value)

    @field_validator("vapid_subject")
    @classmethod
    def _subject(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("mailto:", "https://")):
            raise ValueError("it must start with mailto: or https://")
        return value


class MediaSettings(Group):
    """Files: what devices and the agent upload, and what lies on this host and may be shown."""

    media_roots: Names = Field(
        (), description="directories whose files may be fetched by their path and registered, comma separated"
    )
    media_max_mb: int = Field(100, ge=1, description="size of one file, in MiB")
    media_quota_mb: int = Field(
        2048, ge=1, description="size of all uploaded files together, in MiB; beyond it the oldest are deleted"
    )
    media_ttl: Seconds = Field(7 * 86400, description="how long a file can be fetched")

    @field_validator("media_roots")
    @classmethod
    def _absolute(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if any(not os.path.isabs(path) for path in value):
            raise ValueError("each directory must be an absolute path")
        return value


class BridgeSettings(Group):
    """What the agent may do with a phone."""

    bridge_unattended: bool = Field(
        False,
        description="let the agent send messages, call, share and send intents from a phone without asking the owner",
    )


class NotificationSettings(Group):
    """What the apps of a phone post there and the agent may read."""

    notifications_allow: Names = Field(
        (), description="apps whose notifications are kept, as com.example.mail or com.example.*; empty: all"
    )
    notifications_block: Names = Field(
        (), description="apps whose notifications are never kept, written likewise; counts before those allowed"
    )
    notifications_max_age: Seconds = Field(7 * 86400, description="how long a notification is kept")
    notifications_max_count: int = Field(
        1000, ge=1, le=100_000, description="notifications kept of one phone; beyond it the oldest go"
    )

    @field_validator("notifications_allow", "notifications_block")
    @classmethod
    def _apps(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """A pattern that matches nothing would block nothing, and nobody would notice."""
        if odd := next((name for name in value if not re.fullmatch(r"[A-Za-z][\w.]*\*?|\*", name, re.ASCII)), None):
            raise ValueError(f"{odd!r} is no package name: write com.example.mail, or com.example.* for all below it")
        return value


class SshSettings(Group):
    """The host whose shells are shown, where the relay reaches it over SSH: from a container, that of the container."""

    ssh_host: str | None = Field(None, description="host that the terminal's shells run on")
    ssh_port: int = Field(22, ge=1, le=65535, description="port of its sshd")
    ssh_user: str | None = Field(None, description="whose shells they are")
    ssh_key: Path | None = Field(None, description="file of the private key that logs in, without a passphrase")
    ssh_host_key: str | None = Field(
        None, description="the host's public key, as ssh-keyscan prints it, or its SHA256: fingerprint; required"
    )


class TerminalSettings(Group):
    """Shells for devices that were granted `terminal`."""

    terminal_backend: Literal["local", "ssh", "off"] = Field(
        "local",
        description="where shells run: local as the user of the relay, ssh at TALARIA_SSH_HOST if that is set, or off",
    )
    terminal_shell: str | None = Field(None, description="the shell of new sessions; default: the user's own")


class LogSettings(Group):
    """What is logged, and how."""

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severity that is logged")
    log_format: Literal["text", "json"] = Field("text", description="text for people, json for collectors")


class Settings(Group):
    server: ServerSettings = ServerSettings()
    sessions: SessionSettings = SessionSettings()
    mailbox: MailboxSettings = MailboxSettings()
    hermes: HermesSettings = HermesSettings()
    push: PushSettings = PushSettings()
    media: MediaSettings = MediaSettings()
    bridge: BridgeSettings = BridgeSettings()
    notifications: NotificationSettings = NotificationSettings()
    ssh: SshSettings = SshSettings()
    terminal: TerminalSettings = TerminalSettings()
    logs: LogSettings = LogSettings()

    def with_port(self, port: int) -> Settings:
        """The port that 0 became: origins and links are made of it."""
        return self.model_copy(update={"server": self.server.model_copy(update={"port": port})})
