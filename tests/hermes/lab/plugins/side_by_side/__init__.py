"""A tool whose commands pass Hermes's own guard side by side.

Hermes runs dangerous commands of one answer one after another, so only a tool of this kind has two approvals
waiting in one session.
"""

import contextvars
import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

SCHEMA = {
    "name": "side_by_side",
    "description": "Run several shell commands at once.",
    "parameters": {
        "type": "object",
        "properties": {
            "commands": {"type": "array", "items": {"type": "string"}},
            "pause_s": {"type": "number", "description": "between the starts of two commands"},
        },
        "required": ["commands"],
    },
}


def guarded(command):
    from tools.approval import check_all_command_guards

    if not check_all_command_guards(command, "local").get("approved"):
        return "blocked"
    subprocess.run(command, shell=True, check=False)
    return "ran"


def side_by_side(args, **_):
    with ThreadPoolExecutor() as pool:
        running = []
        for command in args["commands"]:
            running.append(pool.submit(contextvars.copy_context().run, guarded, command))
            time.sleep(args.get("pause_s", 0.3))  # so that they ask in this order
        return json.dumps({"outcomes": [one.result() for one in running]})


def register(ctx):
    ctx.register_tool("side_by_side", "side_by_side", SCHEMA, side_by_side)
