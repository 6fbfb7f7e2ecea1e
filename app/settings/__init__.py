"""Every setting, and the only reader of the environment."""

from app.settings.groups import (
    BridgeSettings,
    HermesSettings,
    LogSettings,
    MailboxSettings,
    MediaSettings,
    NotificationSettings,
    PushSettings,
    ServerSettings,
    SessionSettings,
    Settings,
    SshSettings,
    TerminalSettings,
    parse_duration,
)
from app.settings.loading import (
    Setting,
    describe_settings,
    inherited_environment,
    load_settings,
    unknown_settings,
)

__all__ = [
    "BridgeSettings",
    "HermesSettings",
    "LogSettings",
    "MailboxSettings",
    "MediaSettings",
    "NotificationSettings",
    "PushSettings",
    "ServerSettings",
    "SessionSettings",
    "Setting",
    "Settings",
    "SshSettings",
    "TerminalSettings",
    "describe_settings",
    "inherited_environment",
    "load_settings",
    "parse_duration",
    "unknown_settings",
]
