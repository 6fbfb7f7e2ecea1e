"""A relay to be killed, whose turns wait at points: `python -m tests.hermes.doomed DATA_DIR WAY`.

Says in lines of JSON where it listens and which points were reached. Its settings come from the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.hermes.points import Points
from tests.hermes.ways import up
from tests.relay import running, settings_for


def tell(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


async def main(data_dir: Path, way: str) -> None:
    environ = {name.removeprefix("LAB_"): value for name, value in os.environ.items() if name.startswith("LAB_")}
    Points(lambda point: tell({"reached": point})).install()
    async with running(settings_for(data_dir, **environ)) as relay:
        await up(way, relay)
        tell({"listens": {"url": relay.url, "code": (await relay.relay.pairing.mint()).code}})
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
