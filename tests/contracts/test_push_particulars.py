"""What is particular to each push provider."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from app.errors import Misconfigured
from app.guard import AddressRefused, guarded_client
from app.push import encryption
from app.push.errors import TargetInvalid
from app.push.fcm import ServiceAccount
from app.push.provider import Verdict
from app.push.signing import from_b64url
from app.push.webpush import Vapid, WebPush
from tests.contracts.conftest import SUBJECT, a_notice, fcm, ntfy, webpush
from tests.contracts.services import FcmService, Reply, WebPushService, decrypt, fcm_error, public_point

# Web Push


async def test_web_push_says_how_long_how_urgent_and_what_it_replaces(tmp_path: Path) -> None:
    async with webpush(tmp_path, "webpush") as rig:
        for kind in ("message", "cron", "approval"):
            await rig.send(a_notice(kind=kind, count=1))
        message, cron, approval = rig.service.taken
        assert [t["topic"] for t in rig.service.taken] == ["messages", "messages", "approvals"]
        assert (message["urgent"], cron["urgent"], approval["urgent"]) == (True, False, True)
        assert (message["ttl"], approval["ttl"]) == (28 * 86400, 600)
        assert message["path"] == "/wpush/v2/secret-part"
        assert {k: message[k] for k in ("kind", "count", "head", "relay_id", "collapse", "sub")} == {
            "kind": "message", "count": 1, "head": 41, "relay_id": "relay-1", "collapse": "messages", "sub": SUBJECT,
        }  # fmt: skip


async def test_a_longer_text_than_a_record_holds_never_leaves(tmp_path: Path) -> None:
    async with webpush(tmp_path, "webpush") as rig:
        full = await rig.send(a_notice("full", text="ä" * 100_000))  # cut where the notice is made
        assert full.verdict is Verdict.SENT
        long = await rig.send(replace(a_notice(), text="x" * 5000))
        assert long.verdict is Verdict.SHRINK
        assert rig.service.requests == 1


async def test_a_subscription_made_for_another_key_is_over(tmp_path: Path) -> None:
    async with webpush(tmp_path, "webpush") as rig:
        assert isinstance(rig.service, WebPushService)
        rig.service.application_key = "B" * 87
        outcome = await rig.send()
        assert (outcome.verdict, outcome.code) == (Verdict.GONE, "key_mismatch")


def test_the_example_of_rfc_8291() -> None:
    """Section 5 and Appendix A: our key derivation, and the test's own decryption."""
    receiver = _private("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
    sender = _private("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
    secret, salt = from_b64url("BTBZMqHH6r4Tts7J_aSIgg"), from_b64url("DGv6ra1nlYgDCS1FRnbzlw")
    sealed = from_b64url(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_"
        "yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )
    assert decrypt(sealed, receiver, secret) == b"When I grow up, I want to be a watermelon"
    ours, theirs = public_point(sender), public_point(receiver)
    key, nonce = encryption._derive(sender, receiver.public_key(), secret, salt, ours, theirs)
    assert (key, nonce) == (from_b64url("oIhVW04MRdy2XN9CiKLxTg"), from_b64url("4h_95klXJ5E_qnoN"))


def _private(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(from_b64url(text), "big"), ec.SECP256R1())


@pytest.mark.parametrize("size", [0, 1, 1500, encryption.MAX_PLAIN])
def test_only_the_subscriber_reads_it(size: int) -> None:
    key, secret = ec.generate_private_key(ec.SECP256R1()), bytes(range(16))
    sealed = encryption.encrypt(b"a" * size, public_point(key), secret)
    assert decrypt(sealed, key, secret) == b"a" * size
    assert len(sealed) <= 4096
    assert sealed != encryption.encrypt(b"a" * size, public_point(key), secret)


def test_the_vapid_key_is_made_once_and_kept_to_ourselves(tmp_path: Path) -> None:
    made = Vapid.load(tmp_path, SUBJECT)
    assert (tmp_path / "vapid.key").stat().st_mode & 0o777 == 0o600
    assert Vapid.load(tmp_path, SUBJECT).public == made.public
    assert len(base64.urlsafe_b64decode(made.public + "=")) == 65
    (tmp_path / "vapid.key").write_text("something else")
    with pytest.raises(Misconfigured, match=r"vapid\.key"):
        Vapid.load(tmp_path, SUBJECT)


async def test_what_is_no_subscription_is_not_registered(tmp_path: Path, stack: AsyncExitStack) -> None:
    client = await stack.enter_async_context(guarded_client())
    provider, keys = WebPush(client, Vapid.load(tmp_path, SUBJECT), []), WebPushService().keys()
    assert provider.check("https://push.example/x", keys) == "https://push.example/x"
    for endpoint in ("http://push.example/x", "https://127.0.0.1/x", "https://[fd00::1]/x", "file:///etc/passwd"):
        with pytest.raises(AddressRefused):
            provider.check(endpoint, keys)
    for bad in (None, "https://push.example/" + "x" * 3000, "https://push.example/\n"):
        with pytest.raises(TargetInvalid):
            provider.check(bad, keys)
    for wrong in ({}, keys | {"auth": "c2hvcnQ"}, keys | {"p256dh": keys["p256dh"][:-4]}, keys | {"p256dh": "AAAA"}):
        with pytest.raises(TargetInvalid):
            provider.check("https://push.example/x", wrong)


# ntfy


async def test_a_topic_cannot_be_guessed_or_chosen(tmp_path: Path) -> None:
    async with ntfy(tmp_path, "ntfy") as rig:
        topics = {rig.provider.check(None, {}) for _ in range(100)}
        assert len(topics) == 100
        assert all(topic.startswith("talaria-") and len(topic) == 40 for topic in topics)
        with pytest.raises(TargetInvalid):
            rig.provider.check("mytopic", {})
        public = rig.provider.public(rig.target)
        assert public["url"] == f"{public['server']}/{public['topic']}"


async def test_ntfy_rings_again_for_a_new_burst_and_not_for_the_same(tmp_path: Path) -> None:
    async with ntfy(tmp_path, "ntfy") as rig:
        for count in (1, 1, 2):
            await rig.send(a_notice(count=count))
        ids = [taken["sequence_id"] for taken in rig.service.taken]
        assert ids[0] == ids[1] != ids[2]
        assert {(t["priority"], t["click"], t["title"]) for t in rig.service.taken} == {
            (4, "https://home.example", "Talaria")
        }


async def test_the_days_quota_of_ntfy_is_waited_out(tmp_path: Path) -> None:
    async with ntfy(tmp_path, "ntfy") as rig:
        body = json.dumps({"code": 42908, "http": 429, "error": "limit reached: daily message quota"}).encode()
        rig.service.replies = [Reply(429, body)]
        outcome = await rig.send()
        assert (outcome.retry_after, outcome.detail) == (3600, "limit reached: daily message quota")


async def test_ntfy_with_a_wrong_token(tmp_path: Path) -> None:
    async with ntfy(tmp_path, "ntfy") as rig:
        rig.provider._token = "wrong"  # type: ignore[attr-defined]
        outcome = await rig.send()
        assert (outcome.verdict, outcome.code, outcome.detail) == (Verdict.BLOCKED, "auth_refused", "forbidden")


# FCM


async def test_an_access_token_is_used_until_it_ends_and_renewed_when_it_is_refused(tmp_path: Path) -> None:
    async with fcm(tmp_path, "fcm") as rig:
        service = rig.service
        assert isinstance(service, FcmService)
        results = await asyncio.gather(rig.send(), rig.send(), rig.send())
        assert {r.verdict for r in results} == {Verdict.SENT}
        assert service.assertions == 1
        service.access = "revoked meanwhile"
        assert (await rig.send()).verdict is Verdict.SENT
        assert service.assertions == 2
        rig.provider._token_ends = time.time() + 30  # type: ignore[attr-defined]
        assert (await rig.send()).verdict is Verdict.SENT
        assert service.assertions == 3
        assert service.taken[0]["token"] == "registration-token-of-the-app"
        assert (service.taken[0]["ttl"], service.taken[0]["topic"]) == (28 * 86400, "messages")


FCM_ERRORS = [
    (fcm_error(404, "NOT_FOUND", code="UNREGISTERED"), "gone", "gone"),
    (fcm_error(403, "PERMISSION_DENIED", code="SENDER_ID_MISMATCH"), "gone", "key_mismatch"),
    (fcm_error(403, "PERMISSION_DENIED"), "blocked", "auth_refused"),
    (fcm_error(400, "INVALID_ARGUMENT", field="message.token"), "gone", "invalid_token"),
    (
        fcm_error(
            400, "INVALID_ARGUMENT", "The registration token is not a valid FCM registration token",
            code="INVALID_ARGUMENT",
        ),
        "gone", "invalid_token",
    ),
    (fcm_error(400, "INVALID_ARGUMENT", "Android message is too big", code="INVALID_ARGUMENT"), "shrink", "too_big"),
    (fcm_error(400, "INVALID_ARGUMENT", field="message.data[0].value"), "dropped", "rejected"),
    (fcm_error(429, "RESOURCE_EXHAUSTED", code="QUOTA_EXCEEDED"), "later", "rate_limited"),
    (fcm_error(503, "UNAVAILABLE", code="UNAVAILABLE"), "later", "service_failed"),
    (fcm_error(500, "INTERNAL", code="INTERNAL"), "later", "service_failed"),
    (fcm_error(401, "UNAUTHENTICATED", code="THIRD_PARTY_AUTH_ERROR"), "blocked", "auth_refused"),
    (Reply(404, b"<html>not found</html>"), "blocked", "not_found"),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "verdict", "code"), FCM_ERRORS)
async def test_errors_of_fcm(tmp_path: Path, reply: Reply, verdict: str, code: str) -> None:
    async with fcm(tmp_path, "fcm") as rig:
        rig.service.replies = [reply, reply]
        outcome = await rig.send()
        assert (outcome.verdict, outcome.code) == (verdict, code)
        assert outcome.retry_after == (60 if code == "rate_limited" else None)


@pytest.mark.parametrize(
    ("reply", "verdict", "code"),
    [
        (Reply(400, b'{"error":"invalid_grant","error_description":"Invalid JWT"}'), "blocked", "auth_refused"),
        (Reply(401, b'{"error":"invalid_client"}'), "blocked", "auth_refused"),
        (Reply(200, b"no json"), "blocked", "auth_refused"),
        (Reply(503, b"", {"retry-after": "7"}), "later", "service_failed"),
        (Reply(429), "later", "rate_limited"),
    ],
)  # fmt: skip
async def test_no_access_token(tmp_path: Path, reply: Reply, verdict: str, code: str) -> None:
    async with fcm(tmp_path, "fcm") as rig:
        assert isinstance(rig.service, FcmService)
        rig.service.token_replies = [reply]
        outcome = await rig.send()
        assert (outcome.verdict, outcome.code) == (verdict, code)
        assert rig.service.requests == 1
        assert (await rig.send()).verdict is Verdict.SENT


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"private_key": "x"}', '{"private_key": 7}'])
def test_a_file_that_is_no_service_account_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "account.json"
    path.write_text(content)
    with pytest.raises(Misconfigured, match="TALARIA_FCM_CREDENTIALS"):
        ServiceAccount.load(path)
    with pytest.raises(Misconfigured, match="cannot be read"):
        ServiceAccount.load(tmp_path / "absent.json")
