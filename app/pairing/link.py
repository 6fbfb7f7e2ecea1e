"""Where a phone's browser goes to pair."""

from __future__ import annotations


def pair_link(public_url: str | None, port: int, code: str, fingerprint: str) -> str:
    """Code and fingerprint of the relay stand in the fragment, which browsers send to nobody. `port` counts where there
    is no public URL.
    """
    return f"{public_url or f'http://127.0.0.1:{port}'}/pair#code={code}&fp={fingerprint}"
