"""A real HTTP server in the test's own loop, for what the relay calls out to."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.types import ASGIApp

from app.server.serving import listen
from app.tasks import Supervisor


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listening: asyncio.Event) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._listening.set()


@asynccontextmanager
async def serving(app: ASGIApp, authority: Authority | None = None, name: str = "") -> AsyncIterator[int]:
    """The port it listens on, on loopback; with TLS under `name` if there is an authority."""
    listener = listen("127.0.0.1", 0)
    certificate, key = (None, None) if authority is None else authority.issue(name)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1,
        ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    async with Supervisor() as tasks:
        listening = asyncio.Event()
        server = _Server(config, listening)
        running = tasks.start(server._serve([listener]), "server")
        await listening.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await running


@dataclass
class Authority:
    """A certificate authority of one test."""

    home: Path

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._certificate = self._sign(self._name, self._key, ca=True)

    def pem(self) -> str:
        return self._certificate.public_bytes(serialization.Encoding.PEM).decode()

    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.pem())

    def issue(self, name: str) -> tuple[str, str]:
        """Paths of certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, name=name)
        files = self.home / f"{name}.pem", self.home / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(files[0]), str(files[1])

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool = False, name: str = ""
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        public, own = key.public_key(), self._key.public_key()
        builder = (
            x509.CertificateBuilder(subject_name=subject, issuer_name=self._name, public_key=public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )
        if name:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())
