"""Why a file is not taken or not given."""

from __future__ import annotations

from app.errors import RelayError


class MediaUnknown(RelayError):
    """media token not found or expired"""

    code = "media_unknown"
    http_status = 404


class MediaTooLarge(RelayError):
    """The file is larger than TALARIA_MEDIA_MAX_MB allows."""

    code = "media_too_large"
    http_status = 413


class MediaUnsupported(RelayError):
    """Hermes takes pictures with a message (PNG, JPEG, GIF, WebP), and no other files."""

    code = "media_unsupported"
    http_status = 400


class UploadStalled(RelayError):
    """The upload stopped in the middle; send it again."""

    code = "upload_stalled"
    http_status = 408
    retryable = True


class PathDenied(RelayError):
    """That path is not for devices: it is not under TALARIA_MEDIA_ROOTS, or it may hold a secret."""

    code = "media_path_denied"
    http_status = 403


class PathMissing(RelayError):
    """There is no file at that path."""

    code = "media_path_missing"
    http_status = 404
