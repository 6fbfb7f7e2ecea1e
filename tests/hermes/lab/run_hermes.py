#!/usr/bin/env python3
"""Run a real, isolated Hermes Agent (gateway API server + dashboards) against fake_llm.py.

  run_hermes.py start [options]   install if needed, configure, start, wait until healthy
  run_hermes.py stop              stop what start started (by recorded pid, nothing else)
  run_hermes.py restart NAME,...  restart some of: llm gateway dashboard gated
  run_hermes.py status | env      JSON state | shell exports
  run_hermes.py install           only create the venv

Everything lives under --root (venv/, home/ = HERMES_HOME, user/ = HOME, run/ = pids, logs, state)
and listens on 127.0.0.1. Needs only Python 3.11-3.13 with venv, and pip's package index.
The "gated" dashboard is the same server with its password login enabled; the gate is on for any
--host not spelled exactly 127.0.0.1/localhost/::1, so it is started with --host LOCALHOST.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("llm", "gateway", "dashboard", "gated")
DEFAULT_SPEC = "hermes-agent[mcp,sms,web]==0.19.0"  # [sms] is the smallest extra that brings aiohttp


class Failure(Exception):
    pass


def say(msg):
    print("[run_hermes] " + msg, file=sys.stderr, flush=True)


# ---- processes -----------------------------------------------------------------------------


def start_ticks(pid):
    """Kernel start time of a process: tells our pid from a recycled one."""
    try:
        return Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def alive(proc):
    if not os.path.exists("/proc/self/stat"):  # no procfs (macOS): the pid alone has to do
        try:
            os.kill(proc["pid"], 0)
            return True
        except OSError:
            return False
    try:
        state = Path("/proc/%d/stat" % proc["pid"]).read_text().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z" and start_ticks(proc["pid"]) == proc["ticks"]


def stop_proc(name, proc, grace=20.0):
    if not alive(proc):
        return
    os.kill(proc["pid"], signal.SIGTERM)
    deadline = time.time() + grace
    while alive(proc) and time.time() < deadline:
        reap(proc["pid"])
        time.sleep(0.1)
    if alive(proc):
        say("%s (pid %d) ignored SIGTERM, killing its process group" % (name, proc["pid"]))
    try:
        os.killpg(proc["pid"], signal.SIGKILL)  # its own session: start_new_session=True
    except (ProcessLookupError, PermissionError):
        pass
    reap(proc["pid"])


def reap(pid):
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def port_free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def pick_port(port, taken):
    while not port:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        if port in taken:
            port = 0
    taken.add(port)
    return port


def http(url, headers=None, timeout=5):
    req = urllib.request.Request(url, headers=headers or {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(req, timeout=timeout) as r:
            return r.status, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()
    except OSError:
        return 0, b""


# ---- the lab -------------------------------------------------------------------------------


class Lab:
    def __init__(self, root):
        self.root = Path(root).resolve()
        self.venv, self.home = self.root / "venv", self.root / "home"
        self.user, self.run = self.root / "user", self.root / "run"
        self.state_file = self.run / "state.json"
        self.state = {}
        if self.state_file.exists():
            self.state = json.loads(self.state_file.read_text())

    def save(self):
        self.run.mkdir(parents=True, exist_ok=True)
        tmp = self.state_file.with_suffix(".tmp")
        tmp.write_text(json.dumps(self.state, indent=2))
        os.chmod(tmp, 0o600)
        tmp.replace(self.state_file)

    # -- install
    def install(self, spec, python):
        stamp = self.venv / ".spec"
        if stamp.exists() and stamp.read_text() == spec:
            return
        say("installing %s into %s" % (spec, self.venv))
        t = time.time()
        shutil.rmtree(self.venv, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(self.venv)], check=True)
        log = self.root / "install.log"
        for attempt in (1, 2, 3):
            with open(log, "ab") as f:
                rc = subprocess.run(
                    [str(self.venv / "bin/pip"), "install", "--disable-pip-version-check", spec], stdout=f, stderr=f
                ).returncode
            if rc == 0:
                break
            if attempt == 3:
                raise Failure("pip install failed, see %s" % log)
            time.sleep(3 * attempt)
        stamp.write_text(spec)
        say("installed in %.0f s" % (time.time() - t))

    # -- config
    def environment(self, extra):
        keep = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE")
        env = {k: os.environ[k] for k in keep if k in os.environ}
        env.update(
            HOME=str(self.user),
            HERMES_HOME=str(self.home),
            PYTHONUNBUFFERED="1",
            NO_PROXY="127.0.0.1,localhost",
            no_proxy="127.0.0.1,localhost",
        )
        env.update(extra)
        return env

    def write_config(self, o):
        self.home.mkdir(parents=True, exist_ok=True)
        self.user.mkdir(parents=True, exist_ok=True)
        version = subprocess.run(
            [
                str(self.venv / "bin/python"),
                "-c",
                "from hermes_cli.config import DEFAULT_CONFIG as c; print(c.get('_config_version', 0))",
            ],
            env=self.environment({}),
            capture_output=True,
            text=True,
            timeout=120,
        )
        config = {
            "_config_version": int((version.stdout.strip() or "0").split()[-1]),
            "model": {
                "provider": "custom",
                "default": "fake-model",
                "api_key": "fake-key",
                "base_url": "http://127.0.0.1:%d/v1" % o.llm_port,
                "context_length": 131072,
            },
            "approvals": {"mode": "manual", "timeout": 60},
            "security": {"tirith_enabled": False, "allow_lazy_installs": False},
            "curator": {"enabled": False},
            "kanban": {"dispatch_in_gateway": False},
            "auxiliary": {"title_generation": {"enabled": not o.no_titles}},
            "streaming": {"enabled": True, "transport": "edit", "edit_interval": 0.3, "buffer_threshold": 20},
        }
        for path in o.plugin:
            src = Path(path).resolve()
            dst = self.home / "plugins" / src.name
            dst.parent.mkdir(parents=True, exist_ok=True)
            if dst.is_symlink() or dst.exists():
                dst.unlink() if dst.is_symlink() else shutil.rmtree(dst)
            shutil.copytree(src, dst, ignore=shutil.ignore_patterns("__pycache__"))
            config.setdefault("plugins", {}).setdefault("enabled", []).append(src.name)
        for item in o.set:
            key, _, value = item.partition("=")
            node = config
            *parents, last = key.split(".")
            for p in parents:
                node = node.setdefault(p, {})
            try:
                node[last] = json.loads(value)
            except ValueError:
                node[last] = value
        text = "# written by run_hermes.py (JSON is YAML)\n" + json.dumps(config, indent=2) + "\n"
        (self.home / "config.yaml").write_text(text)
        env_lines = [
            "API_SERVER_ENABLED=true",
            "API_SERVER_HOST=127.0.0.1",
            "API_SERVER_PORT=%d" % o.api_port,
            "API_SERVER_KEY=%s" % o.api_key,
        ]
        if o.cors:
            env_lines.append("API_SERVER_CORS_ORIGINS=" + o.cors)
        env_file = self.home / ".env"
        env_file.write_text("\n".join(env_lines + o.env) + "\n")
        env_file.chmod(0o600)

    # -- processes
    def command(self, name):
        s = self.state
        hermes = [str(self.venv / "bin/python"), "-m", "hermes_cli.main"]  # forks rename the console script
        built = any(self.venv.glob("lib/python3*/site-packages/hermes_cli/web_dist/index.html"))
        dash = hermes + (["dashboard", "--no-open", "--skip-build"] if built else ["serve"])  # serve = same API, no UI
        return {
            "llm": (
                [
                    sys.executable,
                    str(HERE / "fake_llm.py"),
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(s["ports"]["llm"]),
                    "--delay-ms",
                    str(s["llm_delay_ms"]),
                    "--log",
                    str(self.run / "llm.jsonl"),
                ],
                {},
            ),
            "gateway": (hermes + ["gateway", "run", "-v"], {}),
            "dashboard": (
                dash + ["--host", "127.0.0.1", "--port", str(s["ports"]["dashboard"])],
                {"HERMES_DASHBOARD_SESSION_TOKEN": s["dashboard_token"]},
            ),
            "gated": (
                dash + ["--host", "LOCALHOST", "--port", str(s["ports"]["gated"])],
                {
                    "HERMES_DASHBOARD_BASIC_AUTH_USERNAME": s["dashboard_user"],
                    "HERMES_DASHBOARD_BASIC_AUTH_PASSWORD": s["dashboard_password"],
                    "HERMES_DASHBOARD_BASIC_AUTH_SECRET": s["dashboard_secret"],
                },
            ),
        }[name]

    def spawn(self, name):
        argv, extra = self.command(name)
        with open(self.run / (name + ".log"), "ab") as log:
            p = subprocess.Popen(
                argv,
                env=self.environment(extra),
                cwd=self.user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.state["procs"][name] = {"pid": p.pid, "ticks": start_ticks(p.pid)}
        self.save()

    def healthy(self, name):
        s, u = self.state, self.state["urls"]
        if name == "llm":
            return http(u["llm"] + "/models")[0] == 200
        if name == "gateway":
            code, body = http(u["api"] + "/health/detailed", {"Authorization": "Bearer " + s["api_key"]})
            return code == 200 and json.loads(body).get("gateway_state") == "running"
        code, body = http(u[name] + "/api/status")
        return code == 200 and json.loads(body).get("auth_required") is (name == "gated")

    def wait(self, name, timeout):
        t = time.time()
        while time.time() - t < timeout:
            if self.healthy(name):
                self.state["startup_seconds"][name] = round(time.time() - self.state["spawned"][name], 2)
                return
            proc = self.state["procs"][name]
            reap(proc["pid"])
            if not alive(proc):
                break
            time.sleep(0.15)
        tail = (self.run / (name + ".log")).read_text(errors="replace")[-3000:]
        raise Failure("%s did not become healthy; end of its log:\n%s" % (name, tail))

    def up(self, names, timeout):
        self.state.setdefault("spawned", {})
        self.state.setdefault("startup_seconds", {})
        for name in names:
            self.state["spawned"][name] = time.time()
            self.spawn(name)
        for name in names:
            self.wait(name, timeout)
        self.save()

    def warm(self):
        """The first agent turn of a process costs 2-4 s of imports; pay it before tests start their clocks."""
        body = json.dumps({"messages": [{"role": "user", "content": "SAY:warm"}]}).encode()
        req = urllib.request.Request(
            self.state["urls"]["api"] + "/v1/chat/completions",
            data=body,
            headers={"Authorization": "Bearer " + self.state["api_key"], "Content-Type": "application/json"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(req, timeout=60) as r:
            reply = json.load(r)
        if reply["choices"][0]["message"]["content"] != "warm":
            raise Failure("warm-up turn answered %r" % reply)

    def down(self, names=NAMES):
        for name in reversed(names):
            proc = self.state.get("procs", {}).pop(name, None)
            if proc:
                stop_proc(name, proc)
        if self.state:
            self.save()


def start(lab, o):
    running = [n for n, p in lab.state.get("procs", {}).items() if alive(p)]
    if running:
        raise Failure("already running: %s (use stop first)" % ", ".join(running))
    names = [n for n in NAMES if not (n == "dashboard" and o.no_dashboard) and not (n == "gated" and o.no_gated)]
    lab.root.mkdir(parents=True, exist_ok=True)
    lab.run.mkdir(parents=True, exist_ok=True)
    if o.reset:
        for d in (lab.home, lab.user):
            shutil.rmtree(d, ignore_errors=True)
        for f in lab.run.glob("*.log"):
            f.unlink()
        (lab.run / "llm.jsonl").unlink(missing_ok=True)
    lab.install(o.spec, o.python)
    taken = {o.llm_port, o.api_port, o.dash_port, o.gated_port}
    o.llm_port, o.api_port = pick_port(o.llm_port, taken), pick_port(o.api_port, taken)
    o.dash_port, o.gated_port = pick_port(o.dash_port, taken), pick_port(o.gated_port, taken)
    ports = {"llm": o.llm_port, "gateway": o.api_port, "dashboard": o.dash_port, "gated": o.gated_port}
    for name in names:
        if not port_free(ports[name]):
            raise Failure("port %d for %s is in use" % (ports[name], name))
    lab.write_config(o)
    base = "http://127.0.0.1:%d"
    lab.state = {
        "spec": o.spec,
        "root": str(lab.root),
        "hermes_home": str(lab.home),
        "ports": ports,
        "procs": {},
        "urls": {
            "llm": base % o.llm_port + "/v1",
            "api": base % o.api_port,
            "dashboard": base % o.dash_port,
            "gated": base % o.gated_port,
        },
        "api_key": o.api_key,
        "dashboard_token": o.dash_token,
        "dashboard_user": o.dash_user,
        "dashboard_password": o.dash_password,
        "dashboard_secret": "lab-secret-for-signing-sessions-0001",
        "llm_delay_ms": o.llm_delay_ms,
        "names": names,
    }
    try:
        lab.up(names, o.timeout)
        if o.warm:
            lab.warm()
    except BaseException:
        lab.down()
        raise
    return lab.state


def env_lines(s):
    rows = {
        "HERMES_API_URL": s["urls"]["api"],
        "HERMES_API_KEY": s["api_key"],
        "HERMES_DASHBOARD_URL": s["urls"]["dashboard"],
        "HERMES_DASHBOARD_TOKEN": s["dashboard_token"],
        "HERMES_GATED_URL": s["urls"]["gated"],
        "HERMES_GATED_USER": s["dashboard_user"],
        "HERMES_GATED_PASSWORD": s["dashboard_password"],
        "HERMES_LAB_HOME": s["hermes_home"],
        "FAKE_LLM_URL": s["urls"]["llm"],
    }
    return "\n".join("export %s='%s'" % kv for kv in rows.items())


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("action", choices=["start", "stop", "restart", "status", "env", "install"])
    ap.add_argument("name", nargs="?", help="component for restart")
    ap.add_argument("--root", default=os.environ.get("HERMES_LAB_ROOT", str(HERE / "lab")))
    ap.add_argument(
        "--spec", default=os.environ.get("HERMES_LAB_SPEC", DEFAULT_SPEC), help="pip requirement or wheel path"
    )
    ap.add_argument("--python", default=sys.executable)
    ap.add_argument("--llm-port", type=int, default=18080, help="0 = any free port (same for the others)")
    ap.add_argument("--api-port", type=int, default=8642)
    ap.add_argument("--dash-port", type=int, default=9119)
    ap.add_argument("--gated-port", type=int, default=9120)
    ap.add_argument("--api-key", default="lab-api-key-0123456789abcdef", help="at least 16 characters")
    ap.add_argument("--dash-token", default="lab-dashboard-token-0123456789")
    ap.add_argument("--dash-user", default="admin")
    ap.add_argument("--dash-password", default="lab-password-1")
    ap.add_argument("--llm-delay-ms", type=float, default=15)
    ap.add_argument("--cors", default="", help="API_SERVER_CORS_ORIGINS")
    ap.add_argument(
        "--plugin", action="append", default=[], help="plugin folder to copy into HERMES_HOME/plugins and enable"
    )
    ap.add_argument("--set", action="append", default=[], metavar="a.b=JSON", help="config.yaml override")
    ap.add_argument("--env", action="append", default=[], metavar="K=V", help="line for HERMES_HOME/.env")
    ap.add_argument("--no-dashboard", action="store_true")
    ap.add_argument("--no-gated", action="store_true")
    ap.add_argument("--no-titles", action="store_true", help="no automatic session titles (saves LLM calls)")
    ap.add_argument("--warm", action="store_true", help="run one agent turn before returning")
    ap.add_argument("--reset", action="store_true", help="wipe HERMES_HOME and logs first")
    ap.add_argument("--timeout", type=float, default=90, help="seconds to wait for each component")
    o = ap.parse_args()
    lab = Lab(o.root)
    try:
        if o.action == "install":
            lab.root.mkdir(parents=True, exist_ok=True)
            lab.install(o.spec, o.python)
        elif o.action == "start":
            s = start(lab, o)
            print(
                json.dumps(
                    {
                        k: s[k]
                        for k in (
                            "urls",
                            "api_key",
                            "dashboard_token",
                            "dashboard_user",
                            "dashboard_password",
                            "hermes_home",
                            "startup_seconds",
                        )
                    },
                    indent=2,
                )
            )
        elif o.action == "stop":
            lab.down()
        elif o.action == "restart":
            names = tuple((o.name or "").split(","))
            if not set(names) <= set(lab.state.get("names", ())):
                raise Failure("restart what? some of: %s" % ", ".join(lab.state.get("names", ())))
            lab.down(names)
            lab.up(names, o.timeout)
        elif o.action == "status":
            s = dict(lab.state)
            s["alive"] = {n: alive(p) for n, p in s.get("procs", {}).items()}
            print(json.dumps(s, indent=2))
            return 0 if s["alive"] and all(s["alive"].values()) else 1
        elif not lab.state:
            raise Failure("never started")
        else:
            print(env_lines(lab.state))
    except Failure as exc:
        say("ERROR: %s" % exc)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
