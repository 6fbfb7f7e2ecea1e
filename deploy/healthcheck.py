"""Exit 0 if the relay of this container answers. Standard library only: it runs every 30 s and must start fast."""

import http.client
import os
import sys


def main() -> int:
    host = os.environ.get("TALARIA_HOST") or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # every address: loopback is one
        host = "127.0.0.1"
    connection = http.client.HTTPConnection(host, int(os.environ.get("TALARIA_PORT") or 8767), timeout=4)
    try:
        connection.request("GET", "/livez")
        return 0 if connection.getresponse().status == 200 else 1
    except OSError as exc:
        print(exc, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
