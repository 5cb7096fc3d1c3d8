"""Does the admin port read requests alike with aiohttp's parser in C and with the one in Python?

Where a wheel of aiohttp for the machine is missing, its parser in Python reads what comes.
"""

import re

import pytest

from tests.live.test_hostile_requests import SMUGGLING
from tests.support.proxy_fixtures import ProxyStarter
from tests.support.raw_client import RawClient, ask
from tests.support.scripted_engine import ScriptedEngine, chatting

FORMS = {"in C": "", "in Python": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
async def test_a35_an_ambiguous_request_to_the_admin_port_is_one_request(
    start_proxy: ProxyStarter, form: str
) -> None:
    """A35: one answer, which is a refusal, and the end; what hides in the body is never read."""
    async with ScriptedEngine(chatting()) as engine:
        proxy = await start_proxy(
            engine.url, "--header-timeout", "2", environment={"AIOHTTP_NO_EXTENSIONS": FORMS[form]}
        )
        for name, data in SMUGGLING.items():
            async with await RawClient.open(proxy.admin_url) as client:
                await client.send(data)
                answer = await client.read_until_close()
            statuses = re.findall(rb"^HTTP/1\.[01] ([0-9]{3}) ", answer, re.MULTILINE)
            assert statuses == [b"400"], (name, answer)
        assert (await ask(proxy.admin_url, "/livez")).status == 200
