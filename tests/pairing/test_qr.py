from __future__ import annotations

import qrcode

from app.pairing.qr import render_text

LINK = "https://home.tailnet-name.ts.net/pair#code=ABCD1234"


def test_the_drawing_is_the_code_with_its_margin() -> None:
    lines = render_text(LINK).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80  # fits a terminal
    light = {"█": (True, True), "▀": (True, False), "▄": (False, True), " ": (False, False)}
    rows: list[list[bool]] = []  # True: dark
    for line in lines:
        rows += [[not light[c][0] for c in line], [not light[c][1] for c in line]]
    expected = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_M, border=4)
    expected.add_data(LINK)
    expected.make(fit=True)
    matrix = [[bool(m) for m in row] for row in expected.get_matrix()]
    assert rows[: len(matrix)] == matrix
    assert not any(any(row) for row in rows[:4] + rows[len(matrix) - 4 :])
