"""The relay is told to stop, for a restore."""

from __future__ import annotations

import os
import signal
from typing import Annotated

from fastapi import APIRouter, Depends

from app.api.deps import Caller, operator
from app.api.errors import NotStoppable
from app.api.openapi import answers

router = APIRouter(tags=["operator"])


@router.post(
    "/relay/stop",
    status_code=202,
    summary="End this process, as SIGTERM does: phones are told to come back",
    responses=answers({"stopping": True}, 202),
)
async def stop(_: Annotated[Caller, Depends(operator)]) -> dict[str, bool]:
    """Raises OperatorRequired, NotStoppable."""
    if os.getpid() == 1:
        raise NotStoppable()
    signal.raise_signal(signal.SIGTERM)
    return {"stopping": True}
