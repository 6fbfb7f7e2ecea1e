"""Answers that wait for somebody else: given by a task, so that the link's next frames need not wait."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from app.channels.base import Call
from app.errors import Overloaded, RelayError
from app.tasks import Supervisor

log = logging.getLogger("talaria.channels")

MAX_ASKING = 8  # answers that one link waits for; what is asked beyond it is refused


class Later:
    def __init__(self, tasks: Supervisor) -> None:
        self._tasks = tasks
        self._asking: Counter[int] = Counter()

    def __call__(self, work: Coroutine[Any, Any, None], call: Call) -> None:
        """Run `work`, which answers; what it raises becomes the refusal. Raises Overloaded."""
        link_id = call.peer.link_id
        if self._asking[link_id] >= MAX_ASKING:
            work.close()
            raise Overloaded("wait for the answers to what you asked before")
        self._asking[link_id] += 1
        self._tasks.start(self._answer(work, call), f"answer to {call.frame.type}")

    async def _answer(self, work: Coroutine[Any, Any, None], call: Call) -> None:
        try:
            await work
        except RelayError as exc:
            call.refuse(exc)
        except Exception:  # such as a row that no frame can carry: who asked must not wait for ever
            log.exception("an answer failed in the relay", extra={"type": call.frame.type})
            call.refuse(RelayError("the relay failed on this frame"))
        finally:
            self._asking[call.peer.link_id] -= 1
            self._asking += Counter()  # forgets those at zero
