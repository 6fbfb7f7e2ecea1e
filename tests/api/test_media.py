"""/media/… on a real server: who may, and with which bodies and headers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.conftest import client_of
from tests.relay import RunningRelay, running, settings_for

MB = 1024 * 1024
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 100
SANDBOX = "sandbox; default-src 'none'"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def shown(tmp_path: Path) -> Path:
    """The root: what it holds is served by path."""
    (tmp_path / "shown").mkdir()
    return tmp_path / "shown"


@pytest.fixture
async def relay(tmp_path: Path, shown: Path) -> AsyncIterator[RunningRelay]:
    settings = settings_for(tmp_path / "data", MEDIA_ROOTS=str(shown), MEDIA_MAX_MB="8")
    async with running(settings) as relay:
        yield relay


@pytest.fixture
async def phone(relay: RunningRelay) -> AsyncIterator[httpx.AsyncClient]:
    device = await relay.connect()
    async with client_of(relay, headers=bearer(device.token)) as http:
        yield http


@pytest.fixture
async def mute(relay: RunningRelay) -> AsyncIterator[httpx.AsyncClient]:
    """A device that may not chat."""
    device = await relay.connect(pairing_code=(await relay.relay.pairing.mint(grants={"terminal": None})).code)
    async with client_of(relay, headers=bearer(device.token)) as http:
        yield http


@pytest.fixture
async def link(relay: RunningRelay) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(relay, headers=bearer(relay.relay.link.read())) as http:
        yield http


async def upload(http: httpx.AsyncClient, content: bytes = PNG, name: str = "a.png", mime: str = "image/png") -> str:
    answer = await http.post("/media/upload", files={"file": (name, content, mime)})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["token"])


def on_disk(relay: RunningRelay) -> list[Path]:
    return sorted((relay.relay.settings.server.data_dir / "media").iterdir())


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Status and words; every answer of these routes is in a sandbox."""
    assert answer.headers["content-security-policy"] == SANDBOX
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-talaria-error"]
    if answer.headers["content-type"] == "application/json":
        body = answer.json()
        assert body.keys() == {"ok", "error"}
        assert body["ok"] is False
        return answer.status_code, body["error"]
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.status_code, answer.text


# by token


async def test_an_upload_comes_back_as_it_was(relay: RunningRelay, phone: httpx.AsyncClient) -> None:
    answer = await phone.post("/media/upload", files={"file": ("hermes-screenshot-1.png", PNG, "image/png")})
    assert answer.status_code == 200
    assert answer.json().keys() == {"ok", "token", "expires_at"}
    assert answer.json()["ok"] is True
    assert abs(answer.json()["expires_at"] - relay.relay.clock.now() - 7 * 86400) < 60
    got = await phone.get(f"/media/{answer.json()['token']}")
    assert (got.status_code, got.content) == (200, PNG)
    headers = {name: got.headers.get(name) for name in (
        "content-type", "content-length", "content-disposition", "cache-control", "content-security-policy",
        "x-content-type-options", "accept-ranges", "x-media-sensitive",
    )}  # fmt: skip
    assert headers == {
        "content-type": "image/png", "content-length": str(len(PNG)), "accept-ranges": "bytes",
        "content-disposition": 'inline; filename="hermes-screenshot-1.png"', "x-media-sensitive": None,
        "cache-control": "private, max-age=3600", "content-security-policy": SANDBOX,
        "x-content-type-options": "nosniff",
    }  # fmt: skip
    head = await phone.head(f"/media/{answer.json()['token']}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(PNG))
    assert head.headers["etag"] == got.headers["etag"]


async def test_who_may(
    relay: RunningRelay, http: httpx.AsyncClient, phone: httpx.AsyncClient, mute: httpx.AsyncClient,
    link: httpx.AsyncClient, operator: httpx.AsyncClient, shown: Path,
) -> None:  # fmt: skip
    (shown / "cap.png").write_bytes(PNG)
    said = {"path": str(shown / "cap.png"), "content_type": "image/png"}
    form: Any = {"file": ("a", b"x")}

    async def statuses(who: httpx.AsyncClient) -> tuple[int, ...]:
        answers = (
            await who.post("/media/upload", files=form), await who.post("/media/register", json=said),
            await who.get(f"/media/{token}"), await who.get("/media/by-path", params={"path": said["path"]}),
        )  # fmt: skip
        for answer in answers:
            assert answer.headers["content-security-policy"] == SANDBOX
        return tuple(answer.status_code for answer in answers)

    token = await upload(phone)
    assert await statuses(operator) == await statuses(link) == (200, 200, 200, 200)
    assert await statuses(phone) == (200, 401, 200, 200)
    assert await statuses(mute) == (403, 401, 200, 403)
    assert await statuses(http) == (401, 401, 401, 401)
    answer = await http.get(f"/media/{token}")
    assert refusal(answer) == (401, "Authorization: Bearer <session_token> required")
    answer = await http.get(f"/media/{token}", headers=bearer("nonsense"))
    assert refusal(answer) == (401, "invalid or expired session token")


@pytest.mark.parametrize("token", ["doesnotexist", "x" * 32, "..%2f..%2foperator-token", "%00", "%ff", "by-path%20"])
async def test_a_token_that_is_none(phone: httpx.AsyncClient, token: str) -> None:
    answer = await phone.get(f"/media/{token}")
    if "%2f" in token:
        assert answer.status_code == 404
    else:
        assert refusal(answer) == (404, "media token not found or expired")


async def test_the_token_is_no_file_name_and_outlives_a_restart(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    async with running(settings) as relay, client_of(relay, headers=relay.operator()) as http:
        token = await upload(http)
    async with running(settings) as relay, client_of(relay, headers=relay.operator()) as http:
        assert (await http.get(f"/media/{token}")).content == PNG
        assert (await http.get(f"/media/{on_disk(relay)[0].name}")).status_code == 404


@pytest.mark.parametrize(
    ("wanted", "status", "part", "content_range"),
    [
        ("bytes=0-7", 206, slice(0, 8), "bytes 0-7/1300000"),
        ("bytes=600000-1200000", 206, slice(600000, 1200001), "bytes 600000-1200000/1300000"),
        ("bytes=-5", 206, slice(1299995, None), "bytes 1299995-1299999/1300000"),
        ("bytes=1299999-", 206, slice(1299999, None), "bytes 1299999-1299999/1300000"),
        ("bytes=0-99999999", 206, slice(None), "bytes 0-1299999/1300000"),
        ("bytes=1300000-", 416, slice(0, 0), "bytes */1300000"),
        ("bytes=5-2", 200, slice(None), None),
        ("bytes=0-1,4-5", 200, slice(None), None),
    ],
)
async def test_a_range(
    phone: httpx.AsyncClient, wanted: str, status: int, part: slice, content_range: str | None
) -> None:  # fmt: skip
    content = os.urandom(1_300_000)
    token = await upload(phone, content, "a.bin", "application/octet-stream")
    got = await phone.get(f"/media/{token}", headers={"Range": wanted})
    assert (got.status_code, got.headers.get("content-range")) == (status, content_range)
    assert got.content == content[part]
    assert got.headers["content-length"] == str(len(content[part]))
    head = await phone.head(f"/media/{token}", headers={"Range": wanted})
    assert (head.status_code, head.headers["content-length"]) == (200, "1300000")


async def test_a_range_and_a_copy_that_the_caller_has(phone: httpx.AsyncClient) -> None:
    token = await upload(phone)
    tag = (await phone.get(f"/media/{token}")).headers["etag"]
    some = {"Range": "bytes=0-7"}
    assert (await phone.get(f"/media/{token}", headers=some | {"If-Range": tag})).status_code == 206
    changed = await phone.get(f"/media/{token}", headers=some | {"If-Range": '"other"'})
    assert (changed.status_code, changed.content) == (200, PNG)
    same = await phone.get(f"/media/{token}", headers={"If-None-Match": tag})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    assert same.headers["content-security-policy"] == SANDBOX


@pytest.mark.parametrize(
    ("name", "mime", "content", "served_as", "disposition"),
    [
        ("a.png", "image/png", b"<html><script>", "application/octet-stream", 'attachment; filename="a.png"'),
        ("a.html", "text/html", b"<html>", "text/html", 'attachment; filename="a.html"'),
        ("a.svg", "image/svg+xml", b"<svg/>", "application/octet-stream", 'attachment; filename="a.svg"'),
        ("a.pdf", "application/pdf", b"%PDF-1.7", "application/pdf", 'inline; filename="a.pdf"'),
        ("a.mp3", "audio/mpeg", b"ID3", "audio/mpeg", 'inline; filename="a.mp3"'),
        ("a.mp4", "video/mp4", b"....ftyp", "video/mp4", 'inline; filename="a.mp4"'),
        ("photo", "image/jpeg", PNG, "image/png", 'inline; filename="photo"'),
        ("Ärger%;.txt", "text/plain", b"x", "text/plain",
         "attachment; filename=\"_rger__.txt\"; filename*=UTF-8''%C3%84rger%25%3B.txt"),
        ("../../x\u202e.txt", "text/plain", b"x", "text/plain", 'attachment; filename="x.txt"'),
    ],
)  # fmt: skip
async def test_what_a_browser_is_told(
    phone: httpx.AsyncClient, name: str, mime: str, content: bytes, served_as: str, disposition: str
) -> None:  # fmt: skip
    got = await phone.get(f"/media/{await upload(phone, content, name, mime)}")
    assert (got.headers["content-type"], got.headers["content-disposition"]) == (served_as, disposition)


# how an upload may look


async def test_the_part_called_file_is_taken_and_nothing_else(phone: httpx.AsyncClient) -> None:
    content = os.urandom(300_000) + b"\r\n--edge-\r\n--edg" + os.urandom(100)
    body = (
        b'--edge\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'
        b'--edge\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        + content + b"\r\n"
        b'--edge\r\nContent-Disposition: form-data; name="file"; filename="b"\r\n\r\nsecond\r\n--edge--\r\n'
    )  # fmt: skip

    async def in_pieces() -> AsyncIterator[bytes]:
        yield body[:71]
        for start in range(71, len(body), 65_537):
            yield body[start : start + 65_537]

    head = {"Content-Type": "multipart/form-data; boundary=edge"}
    answer = await phone.post("/media/upload", content=in_pieces(), headers=head)
    assert (await phone.get(f"/media/{answer.json()['token']}")).content == content


@pytest.mark.parametrize(
    ("content_type", "body", "words"),
    [
        ("application/json", b"{}", "expected multipart/form-data"),
        ("multipart/form-data", b"x", "expected multipart/form-data"),
        ("multipart/form-data; boundary=b", b"", "missing 'file' multipart field"),
        ("multipart/form-data; boundary=b", b"--b--\r\n", "missing 'file' multipart field"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\ny\r\n--b--\r\n',
         "missing 'file' multipart field"),
        ("multipart/form-data; boundary=b", b"nonsense", "this is no valid multipart/form-data"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nhalf',
         "the multipart/form-data breaks off"),
        ("multipart/form-data; boundary=b", b"--b\r\nX: " + b"x" * 9000, "this is no valid multipart/form-data"),
        ("multipart/form-data; boundary=b", b"--b\r\nA: b\r\n\r\n\r\n" * 40, "at most 32 parts are read"),
    ],
)  # fmt: skip
async def test_a_body_that_is_no_form(
    relay: RunningRelay, phone: httpx.AsyncClient, content_type: str, body: bytes, words: str
) -> None:  # fmt: skip
    answer = await phone.post("/media/upload", content=body, headers={"Content-Type": content_type})
    assert refusal(answer) == (400, words)
    assert on_disk(relay) == []


@pytest.mark.parametrize("announced", [True, False])
async def test_a_file_that_is_too_large(relay: RunningRelay, phone: httpx.AsyncClient, announced: bool) -> None:
    limit = 8 * MB
    await upload(phone, bytes(limit), "a", "text/plain")
    body = b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + bytes(limit + 1) + b"\r\n--b--\r\n"

    async def in_pieces() -> AsyncIterator[bytes]:
        yield body

    head = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await phone.post("/media/upload", content=body if announced else in_pieces(), headers=head)
    assert refusal(answer) == (413, f"file too large: at most {limit} bytes")
    padding = {"pad": ("p", bytes(limit + MB)), "file": ("a", b"x")}
    answer = await phone.post("/media/upload", files=padding)
    assert refusal(answer)[0] == 413
    assert len(on_disk(relay)) == 1


# by path


async def test_a_registered_file_as_hermes_relay_has_it(link: httpx.AsyncClient, shown: Path) -> None:
    (shown / "cap.png").write_bytes(PNG)
    said = {"path": str(shown / "cap.png"), "content_type": "image/png", "file_name": 'we"ird.png', "sensitive": True}
    answer = await link.post("/media/register", json=said)
    assert (answer.status_code, answer.json()["ok"], answer.json()["sensitive"]) == (200, True, True)
    assert answer.json().keys() == {"ok", "token", "expires_at", "sensitive"}
    got = await link.get(f"/media/{answer.json()['token']}")
    assert got.content == PNG
    assert got.headers["x-media-sensitive"] == "1"
    assert got.headers["content-disposition"] == "inline; filename=\"weird.png\"; filename*=UTF-8''we%22ird.png"
    (shown / "cap.png").unlink()
    assert refusal(await link.get(f"/media/{answer.json()['token']}")) == (404, "media token not found or expired")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"path": "relative.png"}, "path must be absolute: 'relative.png'"),
        ({"path": "/etc/passwd"}, "path is in a protected credential/system location: '/etc/passwd'"),
        ({"path": "/usr/bin/env"}, "path is not under an allowed root: '/usr/bin/env'"),
        ({"path": "{}/nope.png"}, "path does not exist: '{}/nope.png'"),
        ({"path": "{}/sub"}, "path is not a regular file: '{}/sub'"),
        ({"path": "{}/big"}, "file too large: at most 8388608 bytes"),
        ({"path": "{}/cap.png", "content_type": None}, "missing or invalid 'content_type'"),
        ({"path": "{}/cap.png", "content_type": 7}, "missing or invalid 'content_type'"),
        ({"path": ""}, "missing or invalid 'path'"),
        ({"path": ["x"]}, "missing or invalid 'path'"),
        ({"path": "{}/cap.png", "sensitive": "yes"}, "missing or invalid 'sensitive'"),
        ({"path": "{}/cap.png", "file_name": 1}, "missing or invalid 'file_name'"),
    ],
)
async def test_what_cannot_be_registered(
    operator: httpx.AsyncClient, shown: Path, said: dict[str, Any], words: str
) -> None:  # fmt: skip
    (shown / "cap.png").write_bytes(PNG)
    (shown / "sub").mkdir()
    with (shown / "big").open("wb") as big:
        big.truncate(8 * MB + 1)
    path = said["path"]
    body = {"content_type": "image/png"} | said
    body |= {"path": path.format(shown)} if isinstance(path, str) else {}
    answer = await operator.post("/media/register", json=body)
    assert refusal(answer) == (400, words.format(shown))
    assert (await operator.post("/media/register", content=b"[")).status_code == 400


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        (None, 400, "missing 'path' query parameter"),
        ("", 400, "missing 'path' query parameter"),
        ("relative", 403, "path must be absolute: 'relative'"),
        ("/etc/passwd", 403, "path is in a protected credential/system location: '/etc/passwd'"),
        ("{}/nope.png", 404, "path does not exist: '{}/nope.png'"),
        ("{}/link.png", 403, "path leads through a link: '{}/link.png'"),
        ("{}/../x", 403, "path is in a protected credential/system location: '{}/../x'"),
        ("{}/auth.json", 403, "path is in a protected credential/system location: '{}/auth.json'"),
        ("{}/big", 403, "file too large: at most 8388608 bytes"),
    ],
)  # fmt: skip
async def test_what_no_path_gives(
    phone: httpx.AsyncClient, shown: Path, path: str | None, status: int, words: str
) -> None:  # fmt: skip
    (shown / "link.png").symlink_to("/etc/passwd")
    with (shown / "big").open("wb") as big:
        big.truncate(8 * MB + 1)
    params = {} if path is None else {"path": path.format(shown)}
    assert refusal(await phone.get("/media/by-path", params=params)) == (status, words.format(shown))


async def test_a_file_by_its_path(phone: httpx.AsyncClient, shown: Path) -> None:
    (shown / "cap.png").write_bytes(PNG)
    got = await phone.get("/media/by-path", params={"path": str(shown / "cap.png")})
    assert (got.status_code, got.content, got.headers["content-type"]) == (200, PNG, "image/png")
    assert got.headers["content-disposition"] == 'inline; filename="cap.png"'
    assert "x-media-sensitive" not in got.headers
    asked = {"path": str(shown / "cap.png"), "content_type": "text/plain", "sensitive": "1"}
    got = await phone.get("/media/by-path", params=asked, headers={"Range": "bytes=0-7"})
    assert (got.status_code, got.content, got.headers["content-type"]) == (206, PNG[:8], "text/plain")
    assert got.headers["content-disposition"] == 'attachment; filename="cap.png"'
    assert got.headers["x-media-sensitive"] == "1"
    head = await phone.head("/media/by-path", params={"path": str(shown / "cap.png")})
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(PNG)))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/media/x", 405), ("OPTIONS", "/media/upload", 405), ("GET", "/media", 405), ("GET", "/media/", 307),
        ("GET", "/media/a/b", 404), ("GET", "/media/upload/", 307), ("GET", "/%6dedia/a%2fb", 404),
    ],
)  # fmt: skip
async def test_what_no_route_answers_is_in_the_sandbox_too(
    operator: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    answer = await operator.request(method, path)
    assert (answer.status_code, answer.headers["content-security-policy"]) == (status, SANDBOX)
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_what_is_refused_before_any_route_is_in_the_sandbox_too(operator: httpx.AsyncClient) -> None:
    for headers, status in (({"Host": "elsewhere.example"}, 421), ({"Origin": "https://elsewhere.example"}, 403)):
        answer = await operator.post("/media/upload", headers=headers)
        assert (answer.status_code, answer.headers["content-security-policy"]) == (status, SANDBOX)
