"""What is passed on of a request and of an answer, and what is not: pure rules."""

from __future__ import annotations

import pytest

from app.hermes.listener import MAX_BEHIND, Listener, ListenerBehind
from app.hermes.passing import paths
from app.hermes.passing.headers import returned, sent
from app.hermes.passing.paths import PathRefused


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models", "/v1/runs/run_1/events", "/api/sessions", "/api/sessions/a/messages", "/api/jobs",
        "/api/jobs/1/run", "/p/work/v1/models", "/p/work/api/sessions/x", "/p/work/health", "/p/a%20b/api/jobs",
    ],
)  # fmt: skip
def test_the_documented_paths_are_passed_on(path: str) -> None:
    assert paths.is_passed(path.encode())
    paths.check(path.encode(), b"limit=2&q=%2f..")


@pytest.mark.parametrize(
    "path",
    [
        "/", "/health", "/v1", "/v2/x", "/api", "/api/sessionsx", "/api/jobsx/1", "/api/cron/fire",
        "/api/platforms/x/events", "/admin", "/dashboard/api/sessions", "/p/work/admin", "/p/work", "/p//v1/models",
        "//v1/models", "/%76%31/models",
        "/p/work/p/other/v1/models", "/V1/models", "/p/work/healthy",
    ],
)  # fmt: skip
def test_nothing_else_is(path: str) -> None:
    assert not paths.is_passed(path.encode())


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../admin", "/v1/%2e%2e/admin", "/v1/.%2E/x", "/v1/a%2fb", "/v1/a%2Fb", "/v1//models", "/v1/./models",
        "/v1/a%5cb", "/v1/a\\b", "/v1/%00", "/v1/a%0d%0ab", "/p/../v1/models", "/p/%2e%2e/v1/models", "/v1/..;/admin",
        "/v1/\u00e9", "/v1/a b", "/api/sessions//chat",
    ],
)  # fmt: skip
def test_what_two_readers_could_read_differently_is_refused(path: str) -> None:
    with pytest.raises(PathRefused):
        paths.check(path.encode(), b"")


def test_a_query_that_is_none_is_refused() -> None:
    with pytest.raises(PathRefused):
        paths.check(b"/v1/models", b"a b")


def test_the_streamed_chat_of_a_session_is_recognised() -> None:
    assert paths.chat_stream(b"/api/sessions/a%20b/chat/stream") == (None, "a b")
    assert paths.chat_stream(b"/p/work/api/sessions/x/chat/stream") == ("work", "x")
    assert paths.chat_stream(b"/api/s%65ssions/x/ch%61t/stream") == (None, "x")
    assert paths.chat_stream(b"/api/sessions/x/chat") is None
    assert paths.session_of(b"/p/work/api/sessions/x/fork") == "x"
    assert paths.session_of(b"/api/sessions") is None


def test_what_a_caller_says_of_itself_and_of_the_way_stays_here() -> None:
    headers = [
        ("authorization", "Bearer secret"), ("cookie", "a=b"), ("origin", "https://x"), ("host", "relay"),
        ("x-forwarded-for", "1.2.3.4"), ("forwarded", "for=1"), ("x-real-ip", "1"), ("via", "1.1 x"), ("cf-ray", "1"),
        ("tailscale-user-login", "me"), ("sec-fetch-mode", "cors"), ("proxy-authorization", "x"), ("te", "trailers"),
        ("connection", "close, X-Mine"), ("x-mine", "1"), ("keep-alive", "1"), ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"), ("accept-encoding", "gzip"), ("x-api-key", "secret"), ("referer", "https://x"),
        ("expect", "100-continue"), ("content-length", "3"), ("trailer", "x"), ("x-http-method-override", "DELETE"),
    ]  # fmt: skip
    kept = [("accept", "*/*"), ("x-hermes-session-id", "s"), ("idempotency-key", "k"), ("user-agent", "OpenAI")]
    given = [(name.encode(), value.encode()) for name, value in [*headers, *kept]]
    assert sent(given) == [(name.encode(), value.encode()) for name, value in kept]


def test_what_would_speak_for_the_relay_does_not_come_back() -> None:
    headers = [
        ("set-cookie", "a=b"), ("access-control-allow-origin", "*"), ("strict-transport-security", "max-age=1"),
        ("x-accel-redirect", "/secret"), ("x-sendfile", "/secret"), ("www-authenticate", "Basic"), ("server", "x"),
        ("connection", "x-hop"), ("x-hop", "1"), ("keep-alive", "1"), ("transfer-encoding", "chunked"), ("date", "x"),
        ("location", "http://127.0.0.1:8642/"), ("x-talaria-error", "x"), ("x-bad", "a\x01b"), ("clear-site-data", "*"),
    ]  # fmt: skip
    kept = [("content-type", "application/json"), ("retry-after", "1"), ("x-hermes-session-id", "s"), ("etag", "e")]
    given = [(name.encode(), value.encode()) for name, value in [*headers, *kept]]
    assert returned(given) == [(name.encode(), value.encode()) for name, value in kept]


def test_a_stream_is_marked_as_one_that_nobody_holds_up() -> None:
    found = dict(returned([(b"content-type", b"text/event-stream; x"), (b"cache-control", b"no-cache")]))
    assert found[b"x-accel-buffering"] == b"no"
    assert found[b"cache-control"] == b"no-cache, no-transform"


async def test_a_listener_that_falls_behind_is_cut_after_a_whole_event() -> None:
    listener = Listener()
    listener.begins(200, [])
    event = b"data: " + b"x" * 1000 + b"\n\n"
    for _ in range(MAX_BEHIND // len(event)):
        listener.hears(event)
    listener.hears(event + b"data: half")
    listener.hears(b"the rest\n\n")
    heard = await listener.read()
    assert heard.endswith(b"x\n\n")
    with pytest.raises(ListenerBehind):
        await listener.read()


async def test_a_listener_hears_all_before_it_hears_of_the_end() -> None:
    listener = Listener()
    listener.hears(b"a")
    listener.ended()
    listener.ended(ListenerBehind())
    assert [await listener.read(), await listener.read()] == [b"a", b""]
