"""`python -m app.demo --key K [--port P] [...]`: the stand-in in a process of its own, for tests."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

from uvicorn.loops.auto import auto_loop_factory

from app.demo.stand_in import serve_stand_in


async def serve(args: argparse.Namespace) -> None:
    """Says where it listens as one line of JSON. The token of the dashboard is in its page, as in Hermes."""
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told_to_stop.set)
    async with serve_stand_in(
        args.key,
        args.port,
        delay_s=args.delay / 1000,
        approval_timeout_s=args.approval_timeout,
        dashboard_port=args.dashboard_port,
        dashboard_token=args.dashboard_token,
    ) as stand_in:
        print(json.dumps({"url": stand_in.url, "dashboard_url": stand_in.dashboard_url}), flush=True)
        await told_to_stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m app.demo", description="A stand-in for Hermes: API server and dashboard."
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--key", required=True, help="the API key it asks for")
    parser.add_argument("--dashboard-port", type=int, default=0, help="0 takes a free port")
    parser.add_argument("--dashboard-token", default="", help="the token the dashboard asks for; default: a new one")
    parser.add_argument("--approval-timeout", type=float, default=60.0, metavar="S", help="how long approvals wait")
    parser.add_argument("--delay", type=float, default=25.0, metavar="MS", help="pause before each piece of an answer")
    args = parser.parse_args()
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        runner.run(serve(args))


if __name__ == "__main__":
    main()
