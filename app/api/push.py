"""Push over HTTP: a device's targets and wishes, and the operator's test of the whole way."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from app.api import examples
from app.api.bodies import read_model
from app.api.deps import Device, OpenRelay, Operator
from app.api.openapi import answers, takes
from app.push.rules import Preferences
from app.wire.payloads import DeviceId, Payload, PushRegister

MAX_WAIT_S = 60.0

router = APIRouter(tags=["push"])


class PushTest(Payload):
    device_id: DeviceId


@router.get("/push", responses=answers(examples.PUSH))
async def about(relay: OpenRelay, device: Device) -> dict[str, Any]:
    """How push stands for the caller: `state`, `targets`, `preferences`, the last `outcomes`, and what a client needs
    to register: `providers` and `vapid_key`.
    """
    return await relay.push.about(device.device_id)


@router.post(
    "/push/targets",
    status_code=201,
    openapi_extra=takes(PushRegister, examples.TARGET),
    responses=answers(examples.TARGETED, 201),
)
async def register(request: Request, relay: OpenRelay, device: Device) -> dict[str, Any]:
    """Where the caller can be woken. To be repeated at each start: it says that the target is still good."""
    wanted = await read_model(request, PushRegister)
    keys = wanted.keys.model_dump() if wanted.keys else {}
    return await relay.push.register(device.device_id, wanted.provider, wanted.endpoint, keys)


@router.delete("/push/targets/{target_id}", responses=answers(examples.REMOVED))
async def unregister(target_id: str, relay: OpenRelay, device: Device) -> dict[str, Any]:
    return {"removed": await relay.push.unregister(device.device_id, target_id)}


@router.put(
    "/push/preferences", openapi_extra=takes(Preferences, examples.WISHES), responses=answers(examples.PREFERENCES)
)
async def prefer(request: Request, relay: OpenRelay, device: Device) -> dict[str, object]:
    """Replaces them; what is not named gets its default."""
    wishes = await read_model(request, Preferences)
    await relay.push.set_preferences(device.device_id, wishes)
    return wishes.as_json()


@router.post("/push/test", openapi_extra=takes(PushTest, examples.PUSH_TEST), responses=answers(examples.PUSH_TESTED))
async def follow(request: Request, relay: OpenRelay, _: Operator) -> dict[str, Any]:
    """Push to every target of a device now. `hops` say how far each came; `message_id` is what it is to acknowledge."""
    wanted = await read_model(request, PushTest)
    return await relay.push.trial.run(wanted.device_id)


@router.get("/push/test/{message_id}", responses=answers(examples.ANSWERED))
async def answered(
    message_id: str, relay: OpenRelay, _: Operator, wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0
) -> dict[str, bool]:
    """Whether the device has acknowledged it, asked until it has, for at most `wait` seconds."""
    return {"answered": await relay.push.trial.answered(message_id, wait)}
