"""What can go wrong with a backup."""

from __future__ import annotations

from app.errors import RelayError


class BackupInvalid(RelayError):
    """This is not a whole backup of Talaria."""

    code = "backup_invalid"
    http_status = 400


class BackupFailed(RelayError):
    """The backup could not be made or put back."""

    code = "backup_failed"
