"""The reader of streams against bytes on a real socket, on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.errors import RelayError
from app.hermes import stream
from app.hermes.errors import (
    RouteMissing,
    SessionNotFound,
    StreamBroken,
    UpstreamAuthRequired,
    UpstreamBusy,
    UpstreamFailed,
    UpstreamInvalid,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from app.hermes.routes import Route
from app.hermes.stream import get_events, post_events
from app.wire.sse import SseEvent
from tests.hermes_client.canned import END, STREAM, Canned, answer, canned, chunk

EVENT = "event: a\ndata: 日本語 🎉\n\n".encode()
Run = Callable[[Awaitable[Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs on that loop. Not an async test: those have one loop of their own."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(20):
                return await work

        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(bounded())

    return run


class Reading:
    def __init__(self) -> None:
        self.events: list[SseEvent] = []
        self.opened = 0

    async def read(self, server: Canned, **options: Any) -> None:
        await post_events(
            server.route(Authorization="Bearer key"), "/p", b'{"message":"x"}', self.events.extend,
            opened=self._open, **options,
        )  # fmt: skip

    def _open(self) -> None:
        self.opened += 1


async def read(*pieces: bytes, **options: Any) -> Reading:
    reading = Reading()
    async with canned(*pieces) as server:
        await reading.read(server, **options)
    return reading


async def failing(*pieces: bytes, stays: bool = False, **options: Any) -> tuple[Reading, RelayError]:
    reading = Reading()
    async with canned(*pieces, stays=stays) as server:
        with pytest.raises(RelayError) as caught:
            await reading.read(server, **options)
    return reading, caught.value


def test_a_stream_is_read_to_its_end(run: Run) -> None:
    reading = run(read(STREAM, chunk(EVENT), chunk(b": keepalive\n\n"), chunk(EVENT * 3), END))
    assert reading.events == [("a", "日本語 🎉".encode())] * 4
    assert reading.opened == 1


def test_bytes_may_be_cut_anywhere(run: Run) -> None:
    whole = STREAM + chunk(EVENT[:13]) + chunk(EVENT[13:]) + chunk(EVENT) + END
    reading = run(read(*(whole[at : at + 1] for at in range(len(whole)))))
    assert reading.events == [("a", "日本語 🎉".encode())] * 2


def test_much_at_once_comes_in_order(run: Run) -> None:
    events = b"".join(b"event: a\ndata: %d\n\n" % n for n in range(20_000))
    reading = run(read(STREAM, chunk(events), END))
    assert [int(data) for _, data in reading.events] == list(range(20_000))


def test_what_is_sent(run: Run) -> None:
    async def send() -> bytes:
        async with canned(STREAM, END) as server:
            await Reading().read(server)
        return server.requests[0]

    head, _, body = run(send()).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /p HTTP/1.1"
    assert b"Authorization: Bearer key" in lines
    assert b"Content-Length: 15" in lines
    assert body == b'{"message":"x"}'


def test_what_is_sent_for_a_stream_that_is_there(run: Run) -> None:
    async def ask() -> tuple[bytes, list[SseEvent]]:
        events: list[SseEvent] = []
        async with canned(STREAM, chunk(EVENT), END) as server:
            await get_events(server.route(Authorization="Bearer key"), "/p", events.extend, opened=lambda: None)
        return server.requests[0], events

    request, events = run(ask())
    assert request.startswith(b"GET /p HTTP/1.1\r\n")
    assert b"Authorization: Bearer key\r\n" in request
    assert b"Content-" not in request
    assert len(events) == 1


def test_a_header_of_the_request_cannot_take_the_place_of_the_key(run: Run) -> None:
    async def send() -> bytes:
        async with canned(STREAM, END) as server:
            headers = {"X-Hermes-Session-Id": "s1", "Authorization": "Bearer other"}
            route = server.route(Authorization="Bearer key")
            await post_events(route, "/p", b"{}", lambda _: None, opened=lambda: None, headers=headers)
        return server.requests[0]

    request = run(send())
    assert b"X-Hermes-Session-Id: s1\r\n" in request
    assert request.count(b"Authorization: ") == 1
    assert b"Bearer key" in request


def test_an_interim_answer_is_not_the_answer(run: Run) -> None:
    reading = run(read(b"HTTP/1.1 100 Continue\r\n\r\n", STREAM, chunk(EVENT), END))
    assert len(reading.events) == 1


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        ("401 Unauthorized", b'{"error":{"message":"Invalid API key","code":"invalid_api_key"}}', UpstreamAuthRequired),
        ("404 Not Found", b'{"error":{"message":"no","code":"session_not_found"}}', SessionNotFound),
        ("404 Not Found", b"404: Not Found", RouteMissing),
        ("400 Bad Request", b'{"error":{"message":"Missing","code":"missing_message"}}', UpstreamRefused),
        ("400 Bad Request", b'{"error":"just words"}', UpstreamRefused),
        ("302 Found", b"", UpstreamRefused),
        ("403 Forbidden", b"", UpstreamRefused),
        ("429 Too Many Requests", b"", UpstreamBusy),
        ("503 Service Unavailable", b"[]", UpstreamBusy),
        ("500 Internal Server Error", b"500 oh", UpstreamFailed),
        ("500 Internal Server Error", b"x" * 100_000, UpstreamFailed),
    ],
)
def test_a_refusal_is_named(run: Run, status: str, body: bytes, error: type[RelayError]) -> None:
    reading, raised = run(failing(answer(status, body, "Retry-After: 7", "Content-Type: text/plain")))
    assert type(raised) is error
    assert reading.opened == 0
    assert raised.retry_after == (7 if error is UpstreamBusy else None)


@pytest.mark.parametrize("seconds", ["9" * 20, "9" * 5000, "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_time_to_wait_that_is_none_is_left_out(run: Run, seconds: str) -> None:
    _, raised = run(failing(answer("429 Too Many Requests", b"", f"Retry-After: {seconds}")))
    assert (type(raised), raised.retry_after) == (UpstreamBusy, None)


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([b"HTTP/1.1 200 OK\r\n", *[b"X-Fill: " + b"x" * 8000 + b"\r\n"] * 20], UpstreamInvalid),
        ([b"HTTP/1.1 200 OK\r\nX-Fill: ", *[b"x" * 8000] * 20], UpstreamInvalid),
        ([b"HTTP/1.1 500 Oh\r\nContent-Length: 99999999999\r\n\r\n", *[b"x" * 8000] * 20], UpstreamFailed),
    ],
)
def test_headers_and_a_refusal_without_end_are_not_read_forever(
    run: Run, pieces: list[bytes], error: type[RelayError]
) -> None:
    _, raised = run(failing(*pieces, stays=True, silence_s=15.0))
    assert type(raised) is error


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([STREAM, chunk(EVENT)], StreamBroken),
        ([STREAM, chunk(EVENT), b"5\r\nab"], StreamBroken),
        ([STREAM[:30]], StreamBroken),
        ([], StreamBroken),
        ([STREAM, chunk(EVENT), b"zz\r\n"], UpstreamInvalid),
        ([b"SSH-2.0-OpenSSH\r\n"], UpstreamInvalid),
        ([answer("200 OK", b"{}", "Content-Type: application/json")], UpstreamInvalid),
    ],
)
def test_what_breaks_off_or_is_no_stream(run: Run, pieces: list[bytes], error: type[RelayError]) -> None:
    reading, raised = run(failing(*pieces))
    assert type(raised) is error
    assert len(reading.events) == (1 if chunk(EVENT) in pieces else 0)


def test_silence_ends_it(run: Run) -> None:
    reading, raised = run(failing(STREAM, chunk(EVENT), stays=True, silence_s=0.5))
    assert type(raised) is StreamBroken
    assert len(reading.events) == 1


def test_comments_are_no_silence(run: Run) -> None:
    async def comment() -> Reading:
        reading = Reading()
        pieces = [STREAM, *[chunk(b": keepalive\n\n")] * 20, chunk(EVENT), END]
        async with canned(*pieces, pause_s=0.1) as server:  # all together longer than the silence that is let pass
            await reading.read(server, silence_s=1.5)
        return reading

    assert len(run(comment()).events) == 1


def test_nobody_listens(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Canned([], port=free.getsockname()[1])
        with pytest.raises(UpstreamUnreachable):
            run(Reading().read(server))


def test_nobody_answers_the_connect(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog, as of a host that drops packets."""
    monkeypatch.setattr(stream, "CONNECT_S", 0.1)
    with socket.socket() as stuck, socket.socket() as first, socket.socket() as second:
        stuck.bind(("127.0.0.1", 0))
        stuck.listen(0)
        for other in (first, second):
            other.setblocking(False)
            other.connect_ex(stuck.getsockname())
        with pytest.raises(UpstreamTimeout):
            run(Reading().read(Canned([], port=stuck.getsockname()[1])))


def test_a_connect_that_took_too_long_but_was_made_has_sent_the_request(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the turn would be said not to have been sent, while it runs."""

    async def late() -> None:
        loop, connect = asyncio.get_running_loop(), asyncio.get_running_loop().create_connection

        async def and_waits(*args: Any, **named: Any) -> None:
            await connect(*args, **named)
            await asyncio.Event().wait()

        monkeypatch.setattr(loop, "create_connection", and_waits, raising=False)
        monkeypatch.setattr(stream, "CONNECT_S", 1.0)  # the connect itself has to be in time
        async with canned(STREAM, chunk(EVENT), END) as server:
            await post_events(server.route(), "/p", b"", lambda events: got.extend(events), opened=lambda: None)

    got: list[SseEvent] = []
    run(late())
    assert len(got) == 1


def test_what_the_sink_raises_reaches_the_caller_and_the_connection_is_closed(run: Run) -> None:
    async def broken() -> None:
        async with canned(STREAM, chunk(EVENT), chunk(EVENT), stays=True) as server:

            def sink(_events: list[SseEvent]) -> None:
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await post_events(server.route(), "/p", b"", sink, opened=lambda: None)
            await server.idle()

    run(broken())


def test_cancelling_closes_the_connection(run: Run) -> None:
    async def cancel() -> None:
        async with canned(STREAM, chunk(EVENT), stays=True) as server, asyncio.TaskGroup() as group:
            got = asyncio.Event()
            reading = post_events(server.route(), "/p", b"", lambda _events: got.set(), opened=lambda: None)
            task = group.create_task(reading)
            await got.wait()
            task.cancel()
            await server.idle()

    run(cancel())


def test_cancelling_the_connect_closes_the_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancel() -> None:
        loop, connect, made = asyncio.get_running_loop(), asyncio.get_running_loop().create_connection, asyncio.Event()
        unheard: list[Any] = []
        loop.set_exception_handler(lambda _loop, context: unheard.append(context))

        async def and_waits(*args: Any, **named: Any) -> None:
            await connect(*args, **named)
            made.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(loop, "create_connection", and_waits, raising=False)
        async with asyncio.timeout(5), canned(stays=True) as server:
            task = asyncio.ensure_future(
                post_events(server.route(), "/p", b"", lambda _events: None, opened=lambda: None)
            )
            await made.wait()
            task.cancel()
            await asyncio.wait([task])
            await server.idle()
            del task
            gc.collect()
        assert unheard == []

    run(cancel())


def test_tls_is_verified(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody vouches for is refused, one of a known authority is not."""
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def over_tls() -> Reading:
        reading = Reading()
        async with canned(STREAM, chunk(EVENT), END, tls=context) as server:
            route = Route(f"https://localhost:{server.port}", "localhost", server.port, True, "", {})
            await post_events(route, "/p", b"", reading.events.extend, opened=lambda: None)
        return reading

    with pytest.raises(UpstreamUnreachable):
        run(over_tls())
    trusting = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(stream, "trust", lambda: trusting)
    assert len(run(over_tls()).events) == 1


def self_signed(path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = path / "cert.pem", path / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )  # fmt: skip
    return cert_file, key_file
