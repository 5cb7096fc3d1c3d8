"""What do fuzzers begin with: ordinary and odd streams, and the words that parsers react to?"""

import random

from tests.fuzz.pieces import make_input
from tests.support.raw_client import chat_body, request
from tests.support.vllm_answers import chat_answer, chat_events, chunk, chunked, stream_head

CHAT = "/v1/chat/completions"
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"

REQUESTS: tuple[bytes, ...] = (
    request("GET", "/v1/models"),
    request("POST", CHAT, body=chat_body(stream=True)),
    request("POST", CHAT, body=chat_body(priority=-3)) * 2,
    request("POST", CHAT, body=chat_body(), chunked=True),
    request("POST", CHAT, body=chat_body(), headers={"Expect": "100-continue", "TE": "trailers"}),
    request(
        "POST",
        "/v1/completions",
        body={"prompt": ["a", "b"], "n": 2, "stream": True, "stream_options": {"x": None}},
        headers={"X-Giveway-Class": "batch", "Connection": "close, X-A", "X-A": "1"},
    ),
    request("POST", "/v1/embeddings", body={"input": [[1, 2], [3]], "priority": 1}),
    request("POST", "/v1/messages", body={"max_tokens": 5, "messages": [{"content": [{}]}]}),
    request("OPTIONS", CHAT) + request("HEAD", "/health") + request("GET", "/v1/models?x=1"),
    _POST + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nT: x\r\n\r\n",
    _POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    _POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\n\r\n",
)
ANSWERS: tuple[bytes, ...] = (
    chat_answer(),
    chat_answer() + b"HTTP/1.1 200 OK\r\n\r\n",
    stream_head()
    + b"".join(chunk(event) for event in chat_events(["a", "b"], include_usage=True))
    + b"0\r\n\r\n",
    b"".join(chat_events(["one", "two"], include_usage=True)),
    b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + chat_answer(),
    b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked([b"{}"]) + b"x",
    (
        b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{}}\n\n'
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"output_tokens":3}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'
    ),
    (
        b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n'
        b'event: response.completed\ndata: {"type":"response.completed","response":'
        b'{"usage":{"input_tokens":3,"output_tokens":4}}}\n\n'
    ),
    b'{"choices":[{"finish_reason":"error"}],"usage":{"prompt_tokens":null,"total_tokens":9}}',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
)
WORDS: tuple[bytes, ...] = (
    *(b"\r\n", b"\n", b"\r", b"\0", b"\r\n\r\n", b"\n\n", b": ", b":", b" ", b"\t", b",", b";"),
    *(b"Content-Length: ", b"Transfer-Encoding: chunked", b"Connection: ", b"close", b"Host: a"),
    *(b"Expect: 100-continue", b"Upgrade: h2c", b"HTTP/1.1", b"HTTP/1.0", b"0\r\n\r\n", b"chunked"),
    *(b"X-Giveway-Class: x", b"X-Vllm-Priority: -9", b"POST ", b"GET ", b"HEAD ", b"200 OK"),
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u0070", b'"priority":', b'"stream":true', b"null"),
    *(
        b'"stream_options":{}',
        b'"messages":[]',
        b"data: ",
        b"data: [DONE]",
        b"event: ",
        b'"usage":',
    ),
    *(
        b'"usage":',
        b'"choices":[]',
        b'"choices":[{',
        b'"content":"',
        b'"finish_reason":"',
        b"1e999",
        b"NaN",
    ),
    *(
        b"99999999999999999999",
        b"ffffffffffffffff",
        b"-1",
        b"\xff",
        b"\xe4\xbd\xa0",
        b"\xef\xbb\xbf",
    ),
)


def inputs(streams: tuple[bytes, ...]) -> list[bytes]:
    """Each stream whole, cut in three, and in single bytes."""
    found: list[bytes] = []
    for stream in streams:
        found += [
            make_input(stream, []) + b"\0",
            make_input(stream, [len(stream) // 3, len(stream) // 2]) + b"\0",
            b"\xff" + stream + b"\0",
        ]
    return found


def mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The input with a few bytes changed, taken out, doubled, put in, or of another's."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(changed) + 1)
        match chance.randrange(7):
            case 0 if place < len(changed):
                changed[place] = chance.randrange(256)
            case 1:
                del changed[place : place + chance.randint(1, 30)]
            case 2:
                changed[place:place] = changed[place : place + chance.randint(1, 60)]
            case 3 | 4:
                changed[place:place] = chance.choice(WORDS)
            case 5:
                other = chance.choice(others)
                begin = chance.randrange(len(other))
                changed[place:place] = other[begin : begin + chance.randint(1, 200)]
            case _:
                changed[0:1] = bytes([chance.choice((0, 1, 2, 3, 7, 255))])
    return bytes(changed[:8192])
