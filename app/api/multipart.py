"""`multipart/form-data` as it comes: the content of one part, the others passed over."""

from __future__ import annotations

from python_multipart import MultipartParser
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import parse_options_header

from app.api.errors import BodyInvalid

MAX_PARTS = 32
MAX_AROUND = 64 * 1024  # bytes of a body besides the file: heads of parts, and small fields


class FormFile:
    """The first part called `file`. Memory does not grow with it."""

    def __init__(self, content_type: str) -> None:
        """Raises BodyInvalid for what is no multipart/form-data."""
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 0 < len(boundary) <= 256:
            raise BodyInvalid("expected multipart/form-data")
        self.name: str | None = None  # None until its part has begun
        self.content_type: str | None = None
        self._pieces: list[bytes] = []
        self._parts = 0
        self._field, self._value = bytearray(), bytearray()
        self._head: dict[bytes, bytes] = {}
        self._is_file = self._complete = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begins, "on_part_data": self._data, "on_end": self._ends,
                "on_header_begin": self._header_begins, "on_header_end": self._header_ends,
                "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
                "on_headers_finished": self._head_ends,
            },
        )  # fmt: skip

    def feed(self, data: bytes) -> list[bytes]:
        """What of the file is in there. Raises BodyInvalid."""
        try:
            self._parser.write(data)
        except MultipartParseError:
            raise BodyInvalid("this is no valid multipart/form-data") from None
        pieces, self._pieces = self._pieces, []
        return pieces

    def finish(self) -> None:
        """Nothing more comes. Raises BodyInvalid."""
        if self.name is None:
            raise BodyInvalid("missing 'file' multipart field")
        if not self._complete:
            raise BodyInvalid("the multipart/form-data breaks off")

    # the parser calls these

    def _part_begins(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise BodyInvalid(f"at most {MAX_PARTS} parts are read")
        self._head, self._is_file = {}, False

    def _header_begins(self) -> None:
        self._field, self._value = bytearray(), bytearray()

    def _header_ends(self) -> None:
        self._head[bytes(self._field).lower()] = bytes(self._value)

    def _head_ends(self) -> None:
        _, options = parse_options_header(self._head.get(b"content-disposition", b""))
        if self.name is None and options.get(b"name") == b"file":
            self._is_file = True
            self.name = options.get(b"filename", b"").decode("utf-8", "replace")
            self.content_type = self._head.get(b"content-type", b"").decode("latin-1") or None

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._pieces.append(data[start:end])

    def _ends(self) -> None:
        self._complete = True
