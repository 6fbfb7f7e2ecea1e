"""`python -m app.demo --port P --key K [--delay MS]`: the stand-in in a process of its own, for tests."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

from uvicorn.loops.auto import auto_loop_factory

from app.demo.stand_in import serve_stand_in


async def serve(port: int, key: str, delay_s: float) -> None:
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    async with serve_stand_in(key, port, delay_s=delay_s) as stand_in:
        print(json.dumps({"url": stand_in.url}), flush=True)
        await told_to_stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m app.demo", description="A stand-in Hermes API server.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--key", required=True, help="the API key it asks for")
    parser.add_argument("--delay", type=float, default=25.0, metavar="MS", help="pause before each piece of an answer")
    args = parser.parse_args()
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        runner.run(serve(args.port, args.key, args.delay / 1000))


if __name__ == "__main__":
    main()
