"""What is behind this address: which model, which interface, how many tokens a word costs?"""

import asyncio
import json
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httptools

from giveway_simulation.demo_load import Limits, work_of
from giveway_simulation.load_client import Api, LoadClient, Target, TargetError, connection_reason
from giveway_simulation.load_generating import run_closed_loop
from giveway_simulation.load_records import Ending, Measured, PlannedRequest
from giveway_simulation.prompt_building import PromptWriter, TextScale

_PROBE_WORDS = (64, 320)
_READ_TIMEOUT_S = 10.0
_LARGEST_ANSWER_BYTES = 2**22
PROBE_CLASS = "probe"
_TEMPLATE_TOKENS = 64
"""Left free of the context for the chat template and the tokenizer's deviations."""
_LAG_METRIC = "emulator:step_lag_seconds_mean"


class EngineProbeError(Exception):
    """The engine does not answer as an OpenAI-compatible one; the text says what it did."""


def read_api_key(file: Path | None) -> str | None:
    """The key in a file; `TargetError` if it cannot be read or is none. None: no file, no key."""
    if file is None:
        return None
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"{file}: the key cannot be read: {error}") from error
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise TargetError(f"{file}: does not hold one key")
    return key


async def find_model(url: str, *, api_key: str | None) -> str:
    """The first model that the engine serves; `EngineProbeError` if it names none."""
    target = Target.parse(url, model="", api_key=api_key)
    status, body = await http_get(target, "/v1/models")
    try:
        model = json.loads(body)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        shown = body[:200].decode(errors="replace")
        raise EngineProbeError(
            f"{target.address}/v1/models names no model (status {status}: {shown}); "
            "say which: --model"
        ) from None
    return str(model)


async def http_get(target: Target, path: str) -> tuple[int, bytes]:
    """Status and body of a small GET; `EngineProbeError` if nothing sensible answers."""
    lines = [f"GET {target.path}{path} HTTP/1.1", f"Host: {target.host}:{target.port}"]
    if target.api_key is not None:
        lines.append(f"Authorization: Bearer {target.api_key}")
    answer = _WholeAnswer()
    parser = httptools.HttpResponseParser(answer)
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                target.host, target.port, ssl=True if target.secure else None
            )
            try:
                writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode())
                while not answer.complete and (data := await reader.read(2**16)):
                    parser.feed_data(data)
            finally:
                writer.transport.abort()
        status = parser.get_status_code()
    except TimeoutError:
        raise EngineProbeError(f"{target.address}{path} does not answer") from None
    except OSError as error:
        raise EngineProbeError(
            f"{target.address} cannot be reached: {connection_reason(error)}"
        ) from error
    except httptools.HttpParserError as error:
        raise EngineProbeError(f"{target.address} does not speak HTTP: {error}") from error
    return status, bytes(answer.body)


class _WholeAnswer:
    """What httptools' parser tells about one answer."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.complete = False

    def on_body(self, data: bytes) -> None:
        if len(self.body) < _LARGEST_ANSWER_BYTES:
            self.body += data

    def on_message_complete(self) -> None:
        self.complete = True


async def measure_text_scale(target: Target) -> tuple[Target, TextScale]:
    """How many tokens a word costs there, by two short requests.

    The target comes back with the interface that works: a model without a chat template refuses
    chat with a 400. An engine that sends no usage gets the default scale.
    """
    prompts = PromptWriter(TextScale(), seed=0)
    for api in (Api.CHAT, Api.COMPLETIONS):
        client = LoadClient(replace(target, api=api), prompts=prompts)
        points: list[tuple[int, int]] = []
        for words in _PROBE_WORDS:
            measured = await probe(client, words=words, output_tokens=2)
            if measured.ending is Ending.REFUSED and measured.status == 400 and api is Api.CHAT:
                break
            if measured.ending is not Ending.COMPLETED:
                status = f"status {measured.status}, " if measured.status else ""
                raise EngineProbeError(f"{target.address}: {status}{measured.error}")
            if measured.usage_prompt_tokens is not None:
                points.append((words, measured.usage_prompt_tokens))
        else:
            if len(points) < len(_PROBE_WORDS):
                return client.target, TextScale()
            try:
                return client.target, TextScale.through(points[0], points[1])
            except ValueError:
                return client.target, TextScale()
    raise EngineProbeError(f"{target.address} refuses both chat and plain completions")


async def probe(
    client: LoadClient, *, words: int | None = None, prompt_tokens: int = 1, output_tokens: int
) -> Measured:
    """One request now."""
    measured = Measured(
        planned=PlannedRequest(
            due_s=0.0,
            class_name=PROBE_CLASS,
            tenant=PROBE_CLASS,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
        )
    )
    request = client.prepare(measured.planned, words=words)
    await client.ask(measured, zero_s=time.monotonic(), request=request)
    return measured


async def measure_capacity(
    client: LoadClient,
    requests: Iterator[PlannedRequest],
    *,
    window_s: float,
    in_flight: int = 48,
) -> float:
    """Work per second (as `work_of` counts) that the engine does when it never runs dry.

    A closed loop over the mix; the first third, in which all are at their prompts, is left out.
    """
    record: list[Measured] = []
    await run_closed_loop(client, requests, in_flight=in_flight, window_s=window_s, record=record)
    from_s = window_s / 3
    prompts = sum(
        m.prompt_tokens for m in record if m.token_times_s and m.token_times_s[0] >= from_s
    )
    outputs = sum(len(m.token_times_s) - bisect_left(m.token_times_s, from_s) for m in record)
    work = work_of(prompts, outputs)
    if work <= 0:
        reason = next((m.error for m in record if m.error), "no answer in time")
        raise EngineProbeError(f"{client.target.address} did no work under load: {reason}")
    return work / (window_s - from_s)


async def engine_lag_s(target: Target) -> float | None:
    """How late the emulator's steps were on average. None: it is no emulator."""
    return await engine_gauge(target, _LAG_METRIC)


async def engine_gauge(target: Target, name: str) -> float | None:
    """A metric of the engine, whatever its labels; the sum if there are several. None: none."""
    try:
        status, body = await http_get(target, "/metrics")
    except EngineProbeError:
        return None
    if status != 200:
        return None
    values = []
    for line in body.decode(errors="replace").splitlines():
        if line.startswith((f"{name} ", f"{name}{{")):
            try:
                values.append(float(line.rsplit(" ", 1)[1]))
            except ValueError:
                continue
    return sum(values) if values else None


async def fitting_limits(target: Target, limits: Limits) -> Limits:
    """The limits, narrowed so that prompt and answer fit the context that the engine states."""
    _, body = await http_get(target, "/v1/models")
    try:
        models = json.loads(body)["data"]
        context = int(next(m["max_model_len"] for m in models if m["id"] == target.model))
    except (ValueError, LookupError, TypeError, StopIteration):
        return limits
    output = min(limits.output_tokens, max(2, context // 4))
    prompt = min(limits.prompt_tokens, max(16, context - output - _TEMPLATE_TOKENS))
    return replace(limits, prompt_tokens=prompt, output_tokens=output)
