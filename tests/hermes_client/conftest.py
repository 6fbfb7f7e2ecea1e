"""An authority that this host trusts, for the way to a Hermes elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.hermes import routes
from tests.servers import Authority


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Authority]:
    """Set as the owner of a private authority sets it."""
    authority = Authority(tmp_path)
    certificate = tmp_path / "authority.pem"
    certificate.write_text(authority.pem())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    routes.trust.cache_clear()
    yield authority
    routes.trust.cache_clear()
