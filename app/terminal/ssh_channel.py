"""What runs on the host over SSH: a command, or a program in a terminal."""

from __future__ import annotations

import asyncio
import signal

import asyncssh

from app.terminal.errors import HostUnavailable
from app.terminal.host import Hearer

MAX_OUTPUT = 8 * 1024 * 1024  # bytes of one command: more than the longest scrollback


class Channel(asyncssh.SSHClientSession[bytes]):
    """Something that runs on the host, from before it is opened until it is gone."""

    connection: asyncssh.SSHClientConnection
    status: int | None = None
    signal: str | None = None
    _siblings: set[Channel]
    _channel: asyncssh.SSHClientChannel[bytes] | None = None
    _closed = False

    def on(self, connection: asyncssh.SSHClientConnection, channels: set[Channel]) -> None:
        """It has a place among the channels of this connection, until it is lost or leaves."""
        self.connection, self._siblings = connection, channels
        channels.add(self)

    def leave(self) -> None:
        self._siblings.discard(self)

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._channel = chan
        if self._closed:
            chan.abort()

    def exit_status_received(self, status: int) -> None:
        self.status = status

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        self.signal = f"SIG{signal}"

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()

    def close(self) -> None:
        """At once: what was not sent yet never is."""
        self._closed = True
        if self._channel:
            self._channel.abort()


class Command(Channel):
    def __init__(self, name: str) -> None:
        self._name = name
        self._said = bytearray()
        self.ended: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def session_started(self) -> None:
        assert self._channel is not None
        self._channel.write_eof()  # it has no input to wait for

    def close(self) -> None:
        super().close()
        self.ended.cancel()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._said += data
        if len(self._said) > MAX_OUTPUT:
            self._end(HostUnavailable(f"{self._name} wrote more than {MAX_OUTPUT} bytes on the host"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.status is not None:
            self._end((self.status, bytes(self._said)))
        elif self.signal is not None:
            number = getattr(signal, self.signal, signal.SIGKILL)
            self._end((128 + number, bytes(self._said)))
        else:
            self._end(HostUnavailable(f"the ssh connection was lost while {self._name} ran"))

    def _end(self, result: tuple[int, bytes] | HostUnavailable) -> None:
        if self.ended.done():
            return
        if isinstance(result, HostUnavailable):
            self.ended.set_exception(result)
        else:
            self.ended.set_result(result)


class Terminal(Channel):
    """A terminal on the host, whose sshd takes up to 2 MiB of input ahead of the program: `unwritten` waits here."""

    pid: int | None = None

    def __init__(self, hearer: Hearer) -> None:
        self._hearer = hearer
        self._paused = False
        self._begun = False
        self._lost = False
        self._full = False
        self._typed = bytearray()  # what the channel has not got: it keeps an entry for each write, however small

    def session_started(self) -> None:
        assert self._channel is not None
        self._channel.pause_reading()  # until whoever asked for it has it
        self._channel.set_write_buffer_limits(0)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        typed, self._typed = bytes(self._typed), bytearray()
        self.write(typed)

    def begin(self) -> None:
        """From the next round of the loop on, the hearer is told."""
        asyncio.get_running_loop().call_soon(self._first)

    def _first(self) -> None:
        self._begun = True
        if self._lost:
            self._hearer.ended(self.status, self.signal)
        elif not self._paused:
            self.resume()

    @property
    def unwritten(self) -> int:
        return self._channel.get_write_buffer_size() + len(self._typed) if self._channel else 0

    def write(self, data: bytes) -> None:
        if self._full:
            self._typed += data
        elif data and self._channel and not self._channel.is_closing():
            self._channel.write(data)

    def resize(self, cols: int, rows: int) -> None:
        if self._channel and not self._channel.is_closing():
            self._channel.change_terminal_size(cols, rows)

    def pause(self) -> None:
        self._paused = True
        if self._channel:
            self._channel.pause_reading()

    def resume(self) -> None:
        self._paused = False
        if self._channel and self._begun:
            self._channel.resume_reading()

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self._hearer.output(data)

    def close(self) -> None:
        """The signal is for a program that does not read its input: until it has, sshd neither hangs up nor answers.

        sshd sends no signals for root. The end is told in any case.
        """
        if self._channel and not self._channel.is_closing():
            self._channel.send_signal("HUP")
        super().close()
        asyncio.get_running_loop().call_soon(self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end()

    def _end(self) -> None:
        told, self._lost = self._lost, True
        if self._begun and not told:
            self._hearer.ended(self.status, self.signal)
