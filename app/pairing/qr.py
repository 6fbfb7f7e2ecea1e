"""A link as a QR code made of characters."""

from __future__ import annotations

import qrcode

_QUIET = 4  # modules of margin: the standard's least; scanners of dark terminals need all of it
_SHORT = 200  # bytes
# Upper half, lower half → character. Light modules are drawn, so the code is right on a dark terminal; a light one
# shows it inverted, which phone cameras read as well.
_CHARACTERS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}


def render_text(data: str) -> str:
    """Two rows of modules to a line of text. `data` up to about 1 KiB stays scannable.

    Raises ValueError for what no code can hold: from about 2.9 KB on.
    """
    # What is long must still fit a terminal of 80 columns and a camera: it gets less to correct errors with.
    level = qrcode.constants.ERROR_CORRECT_M if len(data) <= _SHORT else qrcode.constants.ERROR_CORRECT_L
    code = qrcode.QRCode(error_correction=level, border=_QUIET)
    code.add_data(data)
    code.make(fit=True)
    rows = [[bool(module) for module in row] for row in code.get_matrix()]
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    return "\n".join(
        "".join(_CHARACTERS[pair] for pair in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    )
