"""The Hermes API through the relay, by the way to Hermes that is there."""

from __future__ import annotations

from pathlib import Path

from app.demo.stand_in import serve_stand_in
from tests.api.passing import KEY, passing
from tests.hermes_client.canned import answer, canned
from tests.hermes_client.gates import gate, tls, trusted


async def test_a_request_goes_the_other_way_when_nothing_of_it_was_sent(tmp_path: Path) -> None:
    with trusted(tmp_path) as authority:
        async with (
            serve_stand_in(KEY, delay_s=0) as hermes, gate(hermes.url) as local,
            gate(hermes.url, tls(authority)) as remote,
            passing(local.url, tmp_path / "data", HERMES_API_REMOTE_URL=remote.url) as passed,
        ):  # fmt: skip
            assert (await passed.http.get("/v1/models")).status_code == 200
            assert "GET /v1/models" in local.requests
            await local.shut()
            made = await passed.http.post("/api/sessions", json={"title": "one"})
            assert made.status_code == 201
            assert "POST /api/sessions" in remote.requests
            assert passed.relay.relay.hermes.states()["api"]["route"] == "remote"
            assert len((await passed.http.get("/api/sessions")).json()["data"]) == 1


async def test_no_key_goes_to_what_has_not_said_that_it_is_hermes(tmp_path: Path) -> None:
    async with (
        canned(answer("200 OK", b'{"status":"ok","platform":"another"}')) as stranger,
        passing(f"http://127.0.0.1:{stranger.port}", tmp_path) as passed,
    ):
        assert (await passed.http.get("/v1/models")).status_code == 502
        assert stranger.requests
        assert not [request for request in stranger.requests if KEY.encode() in request]
