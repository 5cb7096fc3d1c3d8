"""How do the engine's bytes become the client's?"""

import pytest
from giveway_admission.answer_reading import AnswerReader
from giveway_admission.endpoints import ENDPOINTS
from giveway_admission.relaying import Mode, Relay, choose_mode
from giveway_admission.response_heads import Framing

from tests.support.vllm_answers import chat_events, chunk

CHAT = ENDPOINTS["/v1/chat/completions"]


@pytest.mark.parametrize(
    ("framing", "is_1_0", "hides", "committed", "mode"),
    [
        (Framing.CHUNKED, False, False, False, Mode.RAW),
        (Framing.LENGTH, False, False, False, Mode.RAW),
        (Framing.CLOSE, False, False, False, Mode.RAW),
        (Framing.CHUNKED, False, True, False, Mode.FRAMED),
        (Framing.CHUNKED, True, False, False, Mode.PLAIN),
        (Framing.CHUNKED, True, True, False, Mode.PLAIN),
        (Framing.LENGTH, True, False, False, Mode.RAW),
        (Framing.CHUNKED, False, False, True, Mode.RAW),
        (Framing.LENGTH, False, False, True, Mode.FRAMED),
    ],
)
def test_a_body_is_framed_anew_only_where_it_must(
    framing: Framing, mode: Mode, *, is_1_0: bool, hides: bool, committed: bool
) -> None:
    """The three cases, and no other."""
    assert choose_mode(framing, is_1_0=is_1_0, hides_usage=hides, committed=committed) is mode


def test_raw_bytes_are_the_very_same_object() -> None:
    """Nothing is copied on the usual way."""
    written: list[bytes] = []
    relay = Relay(written.append, mode=Mode.RAW)
    data = chunk(b"data: x\n\n")
    relay.pass_on(data, b"data: x\n\n", 0.0, complete=False)
    relay.end()
    assert len(written) == 1
    assert written[0] is data


def test_first_token_and_gaps_are_told_as_they_come() -> None:
    """The role's event begins; each later event is one gap after the last."""
    told: list[tuple[str, float]] = []
    relay = Relay(
        lambda _: None,
        mode=Mode.RAW,
        reader=AnswerReader(CHAT, streams=True, status=200, encoded=False),
        first_token=lambda now_s: told.append(("first", now_s)),
        observe_gap=lambda gap_s: told.append(("gap", gap_s)),
    )
    for at_s, event in enumerate(chat_events(["a", "b", "c"])[:4]):
        relay.pass_on(chunk(event), event, float(at_s * at_s), complete=False)
    assert told[0][0] == "first"
    assert told[1:] == [("gap", 1.0), ("gap", 3.0), ("gap", 5.0)][-len(told[1:]) :]
    assert len(told) >= 3


def test_hidden_usage_leaves_proper_chunks() -> None:
    """A25: what is left is framed by us, with its end."""
    written: list[bytes] = []
    relay = Relay(
        written.append,
        mode=Mode.FRAMED,
        reader=AnswerReader(CHAT, streams=True, status=200, encoded=False),
        hides_usage=True,
    )
    shown = chat_events(["a"])
    for event in chat_events(["a"], include_usage=True):
        relay.pass_on(chunk(event), event, 0.0, complete=False)
    relay.end()
    assert b"".join(written) == b"".join(chunk(event) for event in shown) + b"0\r\n\r\n"


def test_an_error_in_a_stream_becomes_one_event_of_bounded_size() -> None:
    """However the engine breaks its lines and however much it says."""
    written: list[bytes] = []
    relay = Relay(written.append, mode=Mode.ERROR)
    relay.pass_on(b"", b'{"error":\n\n {"message": "x"}}', 0.0, complete=False)
    relay.pass_on(b"", b" " + b"y" * 200_000, 0.0, complete=True)
    relay.end()
    data = b"".join(written)
    assert data.split(b"\r\n")[1].startswith(b'data: {"error": {"message": "x"}} y')
    assert data.endswith(b"\n\n\r\n0\r\n\r\n")
    assert len(data) < 66_000
    assert not relay.began


@pytest.mark.parametrize("mode", [Mode.RAW, Mode.FRAMED, Mode.PLAIN])
def test_head_body_and_end_that_come_together_are_one_write(mode: Mode) -> None:
    """A write is a system call: a small answer costs one."""
    written: list[bytes] = []
    relay = Relay(written.append, mode=mode, head=b"HEAD\r\n\r\n")
    data = chunk(b"all") + b"0\r\n\r\n"
    relay.pass_on(data, b"all", 0.0, complete=True)
    relay.end()
    assert written == [b"HEAD\r\n\r\n" + (b"all" if mode is Mode.PLAIN else data)]


@pytest.mark.parametrize("mode", [Mode.RAW, Mode.FRAMED, Mode.PLAIN])
def test_a_head_that_comes_alone_goes_alone(mode: Mode) -> None:
    """A13: the client gets it before the first event."""
    written: list[bytes] = []
    relay = Relay(written.append, mode=mode, head=b"HEAD\r\n\r\n")
    relay.flush()
    assert written == [b"HEAD\r\n\r\n"]
    assert not relay.began
    relay.pass_on(chunk(b"x"), b"x", 0.0, complete=False)
    assert len(written) == 2
    assert relay.began
