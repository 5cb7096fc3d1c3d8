"""`giveway emulate` as a process."""

import argparse
import json
from pathlib import Path

import pytest
from giveway_simulation import command_emulate

from tests.simulation.engine_fixtures import chat
from tests.support.processes import Emulator, GivewayProcess
from tests.support.raw_client import RawClient, request

CHAT = "/v1/chat/completions"


@pytest.mark.slow
async def test_emulator_says_where_it_listens_serves_and_ends_streams_on_sigterm(
    tmp_path: Path,
) -> None:
    """Port 0 is one that is free; SIGTERM aborts what runs, properly, and the exit code is 0."""
    async with Emulator("--model", "mine", logs=tmp_path) as emulator:
        async with await RawClient.open(emulator.url) as client:
            models = (await client.get("/v1/models")).json()["data"]
            assert isinstance(models, list)
            assert models[0]["id"] == "mine"
            body = chat(max_tokens=20_000, stream=True)
            await client.send(request("POST", CHAT, body=body))
            await client.read_head()
            await client.read_chunk()
            code = await emulator.stop()
            chunks = [data async for _, data in client.chunks()]
        assert code == 0
        assert json.loads(chunks[-2][6:])["choices"][0]["finish_reason"] == "abort"
        assert "ms late on average" in emulator.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--max-num-seqs", "2048"], "max_num_batched_tokens (1024) is less than max_num_seqs"),
        (["--kv-cache-tokens", "1024"], "is larger than the KV cache"),
        (["--speed", "0"], "the speed must be above 0"),
    ],
)
async def test_settings_that_cannot_work_are_wrong_use(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    """Exit code 2 and one line that says why."""
    async with GivewayProcess("emulate", *options, logs=tmp_path, name="emulate") as emulator:
        emulator.spawn()
        assert await emulator.exited() == 2
        assert complaint in emulator.stderr
        assert len(emulator.stderr.splitlines()) == 1


def test_a_port_that_is_none_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    """The event loop would take it modulo 65,536 and listen where nobody looks."""
    parser = argparse.ArgumentParser()
    command_emulate.add_arguments(parser)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--port", "99999"])
    assert caught.value.code == 2
    assert "'99999' is no port; give 0 to 65535" in capsys.readouterr().err


@pytest.mark.slow
async def test_a_taken_port_is_told_with_what_to_do(tmp_path: Path) -> None:
    """Exit code 1, and the system's reason in words."""
    async with Emulator(logs=tmp_path) as first:
        port = first.url.rsplit(":", 1)[1]
        async with GivewayProcess("emulate", "--port", port, logs=tmp_path, name="second") as other:
            other.spawn()
            assert await other.exited() == 1
    assert f"can't listen on 127.0.0.1:{port}: address already in use." in other.stderr
    assert "--port" in other.stderr
