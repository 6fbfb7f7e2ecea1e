"""Six digits: the operator says yes to the phone, not to whoever has the code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import NotFound
from app.pairing.errors import ConfirmationPending, ConfirmationUnknown, PairingCodeRejected, PairingDenied
from app.pairing.offers import Offer, Terms
from app.sessions.address import Address
from app.wire.payloads import Auth
from tests.sessions.rooms import Rooms, open_rooms

OWNER, OTHER = Address("203.0.113.7"), Address("198.51.100.9")


@pytest.fixture
async def rooms(tmp_path: Path) -> AsyncIterator[Rooms]:
    async with open_rooms(tmp_path, confirms=True) as rooms:
        yield rooms


def auth(offer: Offer, **fields: Any) -> Auth:
    return Auth.model_validate({"pairing_code": offer.code, "device_id": "dev-1", "device_name": "Pixel"} | fields)


async def asked(rooms: Rooms, offer: Offer, address: Address = OWNER, **fields: Any) -> ConfirmationPending:
    with pytest.raises(ConfirmationPending) as caught:
        await rooms.pairing.redeem(auth(offer, **fields), address)
    return caught.value


async def test_a_yes_lets_the_device_in_that_asks_again(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint("Kitchen")
    pending = await asked(rooms, offer, device_model="Pixel 9")
    assert len(pending.confirm) == 6
    assert pending.confirm.isdigit()
    assert pending.expires_at == rooms.clock.now() + 120
    assert (await asked(rooms, offer, device_model="Pixel 9")).confirm == pending.confirm
    (waiting,) = await rooms.pairing.pending()
    assert (waiting.confirm, waiting.name) == (pending.confirm, "Kitchen")
    assert waiting.claimant == {"name": "Pixel", "model": "Pixel 9", "address": OWNER.host}
    status = await rooms.pairing.status(offer.offer_id)
    assert (status.state, status.confirm, status.device_name) == ("confirming", pending.confirm, "Pixel")
    assert await rooms.count("sessions") == 0
    assert await rooms.pairing.confirm(pending.confirm, allow=True) == offer.offer_id
    assert (await rooms.pairing.status(offer.offer_id)).state == "waiting"
    principal, _ = await rooms.pairing.redeem(auth(offer, device_model="Pixel 9"), OWNER)
    assert principal.device_id == "dev-1"
    assert (await rooms.pairing.status(offer.offer_id)).state == "redeemed"
    assert [entry[1] for entry in await rooms.audit()] == ["offer.minted", "device.confirmed", "device.paired"]
    assert await rooms.pairing.pending() == []


async def test_a_no_ends_the_code_for_everybody(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    pending = await asked(rooms, offer)
    await rooms.pairing.confirm(pending.confirm, allow=False)
    with pytest.raises(PairingDenied):
        await rooms.pairing.redeem(auth(offer), OWNER)
    with pytest.raises(PairingCodeRejected):
        await rooms.pairing.redeem(auth(offer, device_id="dev-2"), OTHER)
    with pytest.raises(ConfirmationUnknown):
        await rooms.pairing.confirm(pending.confirm, allow=True)
    assert (await rooms.pairing.status(offer.offer_id)).state == "expired"
    assert await rooms.count("sessions") == 0


@pytest.mark.parametrize("seconds", [120, 3600, -3600])
async def test_two_minutes_whatever_the_clock_does(rooms: Rooms, seconds: float) -> None:
    offer = await rooms.pairing.mint()
    pending = await asked(rooms, offer)
    rooms.clock.advance(seconds)
    with pytest.raises(ConfirmationUnknown):
        await rooms.pairing.confirm(pending.confirm, allow=True)
    with pytest.raises(PairingDenied):
        await rooms.pairing.redeem(auth(offer), OWNER)
    with pytest.raises(PairingDenied):
        await rooms.pairing.redeem(auth(offer), OWNER)
    assert await rooms.count("sessions") == 0


async def test_an_offer_about_to_end_lasts_as_long_as_its_confirmation(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    rooms.clock.advance(599)
    pending = await asked(rooms, offer)
    rooms.clock.advance(60)
    await rooms.pairing.confirm(pending.confirm, allow=True)
    await rooms.pairing.redeem(auth(offer), OWNER)


@pytest.mark.parametrize("other", [{"device_id": "dev-2"}, {"device_name": "Nexus"}, {"address": OTHER}])
async def test_of_two_at_once_one_loses_and_the_offer_with_it(rooms: Rooms, other: dict[str, Any]) -> None:
    """Two that know the code are one too many, and the operator cannot tell which was first."""
    offer = await rooms.pairing.mint()
    address = other.pop("address", OWNER)
    outcomes = await asyncio.gather(
        rooms.pairing.redeem(auth(offer), OWNER), rooms.pairing.redeem(auth(offer, **other), address),
        return_exceptions=True,
    )  # fmt: skip
    (pending,) = [outcome for outcome in outcomes if isinstance(outcome, ConfirmationPending)]
    assert sum(isinstance(outcome, PairingCodeRejected) for outcome in outcomes) == 1
    with pytest.raises(ConfirmationUnknown):
        await rooms.pairing.confirm(pending.confirm, allow=True)
    for again, where in ((auth(offer), OWNER), (auth(offer, **other), address)):
        with pytest.raises(PairingCodeRejected):
            await rooms.pairing.redeem(again, where)
    assert await rooms.count("sessions") == 0


async def test_whoever_comes_after_the_yes_gets_nothing(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    pending = await asked(rooms, offer)
    await rooms.pairing.confirm(pending.confirm, allow=True)
    with pytest.raises(PairingCodeRejected):
        await rooms.pairing.redeem(auth(offer, device_id="dev-2"), OTHER)
    principal, _ = await rooms.pairing.redeem(auth(offer), OWNER)
    assert principal.device_id == "dev-1"


async def test_what_a_client_says_differently_on_a_new_socket_does_not_matter(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint()
    first = await asked(rooms, offer, instance="a", resume={"after": 1})
    assert (await asked(rooms, offer, instance="b")).confirm == first.confirm


async def test_it_survives_a_restart(tmp_path: Path) -> None:
    async with open_rooms(tmp_path, confirms=True) as rooms:
        offer = await rooms.pairing.mint()
        pending = await asked(rooms, offer)
    async with open_rooms(tmp_path, rooms.clock, confirms=True) as rooms:
        assert (await asked(rooms, offer)).confirm == pending.confirm
        await rooms.pairing.confirm(pending.confirm, allow=True)
    async with open_rooms(tmp_path, rooms.clock, confirms=True) as rooms:
        await rooms.pairing.redeem(auth(offer), OWNER)


async def test_digits_of_two_that_wait_differ(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([7, 7, 8])
    monkeypatch.setattr("secrets.randbelow", lambda _: next(drawn))
    first = await asked(rooms, await rooms.pairing.mint())
    second = await asked(rooms, await rooms.pairing.mint())
    assert (first.confirm, second.confirm) == ("000007", "000008")


async def test_a_client_that_cannot_wait_is_approved_before(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint_for_peer(Terms("Pixel", ttl=3600), api_token=True)
    assert offer.needs_approval
    assert len(offer.code) == 6
    assert (await rooms.pairing.status(offer.offer_id)).state == "approving"
    with pytest.raises(PairingCodeRejected, match="not approved"):
        await rooms.pairing.redeem(auth(offer), OWNER)
    assert await rooms.count("attempts") == 0
    approved = await rooms.pairing.approve(offer.code, Terms())
    assert (approved.offer_id, approved.ttl, approved.name) == (offer.offer_id, 3600, "Pixel")
    principal, _ = await rooms.pairing.redeem(auth(offer), OWNER)
    assert principal.expires_at == rooms.clock.now() + 3600
    assert offer.api_token is not None
    assert (await rooms.sessions.by_api_token(offer.api_token)).session_id == principal.session_id


async def test_approving_may_change_the_terms_and_makes_offers_of_unknown_codes(rooms: Rooms) -> None:
    await rooms.pairing.register("ABC123", ttl=3600)
    with pytest.raises(PairingCodeRejected):
        await rooms.pairing.redeem(Auth(pairing_code="ABC123"), OWNER)
    await rooms.pairing.approve("ABC123", Terms(ttl=60, grants={"chat": None}))
    principal, _ = await rooms.pairing.redeem(Auth(pairing_code="ABC123"), OWNER)
    assert principal.grants == {"chat": rooms.clock.now() + 60}
    await rooms.pairing.approve("ZZZ999", Terms(ttl=60))
    await rooms.pairing.redeem(Auth(pairing_code="ZZZ999"), OWNER)


async def test_approving_a_used_code_does_not_bring_its_api_token_back(rooms: Rooms) -> None:
    offer = await rooms.pairing.mint_for_peer(Terms(), api_token=True)
    await rooms.pairing.approve(offer.code, Terms())
    first, _ = await rooms.pairing.redeem(auth(offer), OWNER)
    await rooms.pairing.approve(offer.code, Terms())
    await rooms.pairing.redeem(auth(offer, device_id="dev-2"), OTHER)
    assert offer.api_token is not None
    assert (await rooms.sessions.by_api_token(offer.api_token)).session_id == first.session_id
    with pytest.raises(NotFound):
        await rooms.pairing.status(offer.offer_id)
