"""nginx as the proxy beside ours: one worker, nothing buffered, connections behind it kept."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from string import Template

PATHS = "/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin"
CONFIG = Template("""
daemon off; worker_processes 1; pid $home/nginx.pid; error_log $home/error.log warn;
events { worker_connections 4096; }
http {
  access_log off; client_body_temp_path $home/body; proxy_temp_path $home/proxy; fastcgi_temp_path $home/fastcgi;
  uwsgi_temp_path $home/uwsgi; scgi_temp_path $home/scgi;
  upstream hermes { server $upstream; keepalive 64; }
  server {
    listen 127.0.0.1:$port; client_max_body_size 0; keepalive_requests 1000000;
    location / {
      proxy_pass http://hermes; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off;
    }
  }
}
""")


def found() -> str | None:
    """The program; None where it is not installed."""
    return shutil.which("nginx", path=PATHS)


def configured(home: Path, upstream: str) -> tuple[Path, int]:
    """A configuration in front of host:port, and the port that it names."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = home / "nginx.conf"
    path.write_text(CONFIG.substitute(home=home, upstream=upstream, port=port))
    return path, port
