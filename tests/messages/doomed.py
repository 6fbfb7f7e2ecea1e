"""A relay in a process of its own that a test may kill: `python -m tests.messages.doomed DATA_DIR [committed]`.

With `committed` it kills itself after the first commit of a message, before anybody has the answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tests.relay import running, settings_for


def die(devices: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(data_dir: Path, *when: str) -> None:
    async with running(settings_for(data_dir)) as relay:
        if "committed" in when:
            relay.relay.hub.ring = die  # type: ignore[method-assign]
        code = (await relay.relay.pairing.mint()).code
        print(json.dumps({"url": relay.url, "code": code, "headers": relay.operator()}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
