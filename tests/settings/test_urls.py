"""Addresses that cannot be one are refused at the start, not found out by whoever dials them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import Misconfigured
from app.settings import load_settings

NOWHERE = Path("/nonexistent/.env")


@pytest.mark.parametrize("name", ["TALARIA_PUBLIC_URL", "TALARIA_HERMES_API_URL"])
@pytest.mark.parametrize(
    "url",
    [
        "https://x:99999", "https://x:0x", "https://a..b", "https://ex ample", "https://[::1", "https://" + "a" * 64,
        "ftp://x", "https://", "https://me@x", "https://x/?a=b", "x:8767", "https://x\n.y",
    ],
)  # fmt: skip
def test_no_address(name: str, url: str) -> None:
    with pytest.raises(Misconfigured, match=f"{name}: it must look like"):
        load_settings({name: url}, NOWHERE)


@pytest.mark.parametrize(
    "url",
    [
        "https://home.tail1234.ts.net", "https://home.ts.net:10443", "http://192.168.1.20:8767", "http://[::1]:8767",
        "http://[fe80::1%eth0]:8767", "https://xn--bcher-kva.example", "https://bücher.example", "http://my_nas:1",
        "https://home.example.",
    ],
)  # fmt: skip
def test_an_address(url: str) -> None:
    assert load_settings({"TALARIA_PUBLIC_URL": url}, NOWHERE).server.public_url == url
    assert load_settings({"TALARIA_HERMES_API_URL": url}, NOWHERE).hermes.hermes_api_url == url
