#!/usr/bin/env python3
"""Deterministic OpenAI-compatible fake LLM (stdlib only).

Endpoints:  GET /health, GET /v1/models, POST /v1/chat/completions (JSON and SSE).

By default it echoes the last user message, one word per streamed delta. Markers in
the last paragraph of that message steer it (each up to the end of its line unless noted; Hermes
merges the text of a failed turn, its own "[System ...]" notes and image descriptions into the user
message as separate paragraphs):

  TOOL:<name>:<arg>   call that tool first (several lines = several calls in one turn); <arg> is
                      JSON if it starts with '{', else the tool's main string argument
  THINK[:<text>]      stream reasoning_content before the answer
  SAY:<text>          answer with <text> instead of the echo ("\\n" becomes a newline)
  PRE:<text>          stream <text> as normal content before the tool call (interim commentary)
  WORDS:<n>           answer with n numbered words
  DELAY:<ms>          pause between deltas (overrides --delay-ms)
  STALL:<seconds>     wait before the first byte of the answer
  HOLD:<path>         wait there until that file is, for two minutes at most (up to the next space)
  HALF:<path>         the same in the middle of the answer's words
  ERROR:<status>      fail with that HTTP status
  CUT:<n>             drop the connection after n deltas
  USED:<n>            report n prompt tokens, to bring Hermes to compress the conversation

Once the conversation ends with tool results it answers "tool said: <first line> ...".
Every request and its outcome is appended to --log as one JSON object a line.
"""

import argparse
import json
import os
import re
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAIN_ARG = {
    "terminal": "command",
    "read_file": "path",
    "search_files": "pattern",
    "web_search": "query",
    "clarify": "question",
    "execute_code": "code",
}


def text_of(content):
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(p.get("text", "") for p in content if isinstance(p, dict))
    return "" if content is None else str(content)


def marker(text, name, default=None):
    m = re.search(r"\b%s:([^\n]*)" % name, text)
    return m.group(1).strip() if m else default


def number(text, name, default):
    m = re.search(r"\b%s:([0-9.]+)" % name, text)
    return float(m.group(1)) if m else default


def steering(user):
    """The paragraph that may hold markers: the last one that is not a note added by Hermes."""
    parts = [p for p in user.split("\n\n") if p.strip() and not p.startswith("[System")]
    return parts[-1] if parts else user


def plan(body):
    """Decide what to answer: dict(reasoning, content, tool_calls)."""
    messages = body.get("messages") or []
    last_user = max((i for i, m in enumerate(messages) if m.get("role") == "user"), default=-1)
    user = text_of(messages[last_user].get("content")) if last_user >= 0 else ""
    results = [text_of(m.get("content")) for m in messages[last_user + 1 :] if m.get("role") == "tool"]
    system = " ".join(text_of(m.get("content")) for m in messages if m.get("role") == "system").lower()
    mark = steering(user)
    out = {"user": user, "mark": mark, "reasoning": "", "content": "", "tool_calls": [], "after_tool": bool(results)}
    out["results"] = results
    if not body.get("tools") and "title" in system and "conversation" in (system + user.lower()):
        words = re.findall(r"\w+", user)
        out["content"] = "Chat " + " ".join(words[-3:])
        return out
    if not body.get("tools") and "summar" in (system + user.lower()):  # the request quotes all markers so far
        out["mark"], out["content"] = "", "Summary of %d characters." % len(user)
        return out
    if re.search(r"\bTHINK\b", mark):
        out["reasoning"] = marker(mark, "THINK") or "Let me think about this step by step."
    offered = {t.get("function", {}).get("name") for t in body.get("tools") or []}
    calls = re.findall(r"\bTOOL:(\w+):([^\n]*)", mark)
    if calls and not results:
        out["content"] = marker(mark, "PRE", "")
        for name, arg in calls:
            if name not in offered:
                out["content"] += "(tool %s is not offered) " % name
                continue
            arg = arg.strip()
            args = json.loads(arg) if arg.startswith("{") else {MAIN_ARG.get(name, "input"): arg}
            out["tool_calls"].append(
                {
                    "id": "call_" + uuid.uuid4().hex[:12],
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(args)},
                }
            )
        if out["tool_calls"] or out["content"]:
            return out
    if results:
        first = next((line for line in results[-1].splitlines() if line.strip()), "")
        out["content"] = "tool said: %s | done after %d result(s)" % (first[:200], len(results))
        return out
    if number(mark, "WORDS", 0):
        out["content"] = " ".join("w%d" % i for i in range(1, int(number(mark, "WORDS", 0)) + 1))
    else:
        out["content"] = marker(mark, "SAY", "").replace("\\n", "\n") or "echo: " + user
    return out


def hold(text, name):
    found = re.search(r"\b%s:(\S+)" % name, text)
    until = time.monotonic() + 120
    while found and not os.path.exists(found.group(1)) and time.monotonic() < until:
        time.sleep(0.02)


def pieces(text):
    return re.findall(r"\s*\S+\s*$|\s*\S+", text) or ([text] if text else [])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "fake-llm/1"

    def log_message(self, *args):
        pass

    def record(self, **event):
        opts = self.server.opts
        event["t"] = round(time.time(), 3)
        if opts.log:
            with self.server.lock, open(opts.log, "a") as f:
                f.write(json.dumps(event, ensure_ascii=False) + "\n")

    def send_json(self, status, obj):
        data = json.dumps(obj).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        path = self.path.split("?")[0].rstrip("/")
        model = self.server.opts.model
        if path in ("/health", "/v1/health"):
            return self.send_json(200, {"status": "ok"})
        if path in ("/v1/models", "/models"):
            return self.send_json(
                200,
                {
                    "object": "list",
                    "data": [
                        {"id": model, "object": "model", "created": 0, "owned_by": "fake", "context_length": 131072}
                    ],
                },
            )
        if path == "/v1/models/" + model:
            return self.send_json(200, {"id": model, "object": "model", "context_length": 131072})
        return self.send_json(404, {"error": {"message": "not found", "type": "invalid_request_error"}})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.split("?")[0].endswith("/chat/completions"):
            return self.send_json(404, {"error": {"message": "not found", "type": "invalid_request_error"}})
        try:
            body = json.loads(raw)
        except ValueError:
            return self.send_json(400, {"error": {"message": "bad JSON", "type": "invalid_request_error"}})
        p = plan(body)
        rid = "chatcmpl-" + uuid.uuid4().hex[:12]
        self.record(
            event="request",
            id=rid,
            stream=bool(body.get("stream")),
            model=body.get("model"),
            n_messages=len(body.get("messages") or []),
            tools=[t.get("function", {}).get("name") for t in body.get("tools") or []],
            user=p["user"][:400],
            after_tool=p["after_tool"],
            results=[text[:4000] for text in p["results"]],
            plan=("tools" if p["tool_calls"] else "text"),
            params={k: v for k, v in body.items() if k not in ("messages", "tools")},
        )
        status = int(number(p["mark"], "ERROR", 0))
        if status:
            self.record(event="error", id=rid, status=status)
            return self.send_json(
                status, {"error": {"message": "fake failure %d" % status, "type": "server_error", "code": "fake_error"}}
            )
        if number(p["mark"], "STALL", 0):
            time.sleep(number(p["mark"], "STALL", 0))
        hold(p["mark"], "HOLD")
        usage = {
            "prompt_tokens": int(number(p["mark"], "USED", 0)) or max(1, len(raw) // 4),
            "completion_tokens": len(pieces(p["content"])) + len(pieces(p["reasoning"])) + 5 * len(p["tool_calls"]),
        }
        usage["total_tokens"] = sum(usage.values())
        base = {"id": rid, "created": int(time.time()), "model": body.get("model") or self.server.opts.model}
        finish = "tool_calls" if p["tool_calls"] else "stop"
        if not body.get("stream"):
            msg = {"role": "assistant", "content": p["content"] or None}
            if p["reasoning"]:
                msg["reasoning_content"] = p["reasoning"]
            if p["tool_calls"]:
                msg["tool_calls"] = p["tool_calls"]
            self.send_json(
                200,
                dict(
                    base,
                    object="chat.completion",
                    usage=usage,
                    choices=[{"index": 0, "message": msg, "finish_reason": finish}],
                ),
            )
            return self.record(event="done", id=rid, usage=usage)
        self.stream(rid, base, p, finish, usage)

    def stream(self, rid, base, p, finish, usage):
        delay = number(p["mark"], "DELAY", self.server.opts.delay_ms) / 1000.0
        cut = int(number(p["mark"], "CUT", 0))
        sent = 0

        def chunk(delta, reason=None, **extra):
            return dict(
                base,
                object="chat.completion.chunk",
                choices=[{"index": 0, "delta": delta, "finish_reason": reason}],
                **extra,
            )

        def write(obj):
            data = ("data: %s\n\n" % (obj if isinstance(obj, str) else json.dumps(obj))).encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        try:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-cache")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            write(chunk({"role": "assistant", "content": ""}))
            for key, text in (("reasoning_content", p["reasoning"]), ("content", p["content"])):
                words = pieces(text)
                for at, piece in enumerate(words):
                    if at == len(words) // 2:
                        hold(p["mark"], "HALF")
                    if cut and sent >= cut:
                        self.record(event="cut", id=rid, sent=sent)
                        self.close_connection = True
                        self.connection.close()
                        return
                    write(chunk({key: piece}))
                    sent += 1
                    time.sleep(delay)
            for i, call in enumerate(p["tool_calls"]):
                args = call["function"]["arguments"]
                half = len(args) // 2
                write(
                    chunk(
                        {
                            "tool_calls": [
                                {
                                    "index": i,
                                    "id": call["id"],
                                    "type": "function",
                                    "function": {"name": call["function"]["name"], "arguments": ""},
                                }
                            ]
                        }
                    )
                )
                for part in (args[:half], args[half:]):
                    write(chunk({"tool_calls": [{"index": i, "function": {"arguments": part}}]}))
                    time.sleep(delay)
            write(chunk({}, finish))
            write(dict(base, object="chat.completion.chunk", choices=[], usage=usage))
            write("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
            self.record(event="done", id=rid, sent=sent, usage=usage)
        except OSError as exc:
            self.record(event="client_disconnected", id=rid, sent=sent, error=type(exc).__name__)
            self.close_connection = True


def main():
    ap = argparse.ArgumentParser(description="Deterministic OpenAI-compatible fake LLM")
    ap.add_argument("--host", default="127.0.0.1")
    ap.add_argument("--port", type=int, default=18080)
    ap.add_argument("--model", default="fake-model")
    ap.add_argument("--delay-ms", type=float, default=15)
    ap.add_argument("--log", default="", help="append request/outcome JSON lines to this file")
    opts = ap.parse_args()
    server = ThreadingHTTPServer((opts.host, opts.port), Handler)
    server.daemon_threads = True
    server.opts, server.lock = opts, threading.Lock()
    print("fake LLM on http://%s:%d/v1 model=%s" % (opts.host, server.server_address[1], opts.model), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
