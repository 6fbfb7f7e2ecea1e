"""The relay is told to stop, for a restore."""

from __future__ import annotations

import os
import signal
from typing import Annotated

from fastapi import APIRouter, Depends

from app import container
from app.api.deps import Caller, operator
from app.api.errors import NotStoppable
from app.api.openapi import answers

router = APIRouter(tags=["operator"])
_FROM_OUTSIDE = (
    "The relay is the main process of its container: a restore from in there would end with it. On the host:"
    " `docker compose stop relay`, `docker compose run --rm -T relay talaria restore --yes - < FILE`,"
    " `docker compose up -d`. Without Compose: `docker stop NAME`,"
    " `docker run --rm -i --volumes-from NAME --user {user} talaria talaria restore --yes - < FILE`,"
    " `docker start NAME`."
)


@router.post(
    "/relay/stop",
    status_code=202,
    summary="End this process, as SIGTERM does: phones are told to come back",
    responses=answers({"stopping": True}, 202),
)
async def stop(_: Annotated[Caller, Depends(operator)]) -> dict[str, bool]:
    """Raises OperatorRequired, NotStoppable."""
    if container.ends_with_us():
        raise NotStoppable(_FROM_OUTSIDE.format(user=f"{os.getuid()}:{os.getgid()}"))
    signal.raise_signal(signal.SIGTERM)
    return {"stopping": True}
