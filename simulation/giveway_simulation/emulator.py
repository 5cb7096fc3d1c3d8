"""The emulator: an engine that takes time as vLLM does, and speaks as vLLM does.

Routes requests to the reading, the live engine and the answers. It promises what a proxy can see of
vLLM 0.32 (Python frontend): paths, statuses, error bodies, event shapes and their order, the times
between them, priorities, disconnects, metrics. The text itself means nothing.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from giveway_simulation.emulator_answering import GeneratedAnswer, now_epoch_s, to_json
from giveway_simulation.emulator_answers import make_answer
from giveway_simulation.emulator_engine import LiveEngine
from giveway_simulation.emulator_fields import Fields, RefusedError, detokenize, read_body, tokenize
from giveway_simulation.emulator_http import Exchange, ServerProtocol
from giveway_simulation.emulator_metrics import CONTENT_TYPE, EngineMetrics
from giveway_simulation.emulator_openai_answers import VERSION
from giveway_simulation.emulator_requests import (
    Api,
    Asked,
    OutputLengths,
    ReadingSettings,
    chat_prompt,
    check_model,
    read_generating,
)
from giveway_simulation.engine_model import EngineLimits, EngineModel, Work
from giveway_simulation.engine_pods import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSettings:
    """One emulated server."""

    model: str
    pod: Pod
    limits: EngineLimits
    max_model_len: int = 32_768
    speed: float = 1.0
    """How many times faster than the pod."""
    max_num_queued_reqs: int | None = None
    """Waiting requests beyond which newcomers get 503. None: no bound."""
    output_lengths: OutputLengths = OutputLengths.FULL

    def __post_init__(self) -> None:
        if self.max_model_len > self.limits.kv_blocks * self.limits.block_tokens:
            raise ValueError(
                f"max_model_len ({self.max_model_len}) is larger than the KV cache"
                f" ({self.limits.kv_blocks * self.limits.block_tokens} tokens)"
            )
        if self.speed <= 0:
            raise ValueError("the speed must be above 0")


class _Generation:
    """One request at the engine: passes tokens on, and takes everything back on a disconnect."""

    __slots__ = ("_answer", "_asked", "_emulator", "_exchange", "_keys", "_produced")

    def __init__(
        self, emulator: "Emulator", asked: Asked, exchange: Exchange, answer: GeneratedAnswer
    ) -> None:
        self._emulator = emulator
        self._asked = asked
        self._exchange = exchange
        self._answer = answer
        self._keys: list[int] = []
        self._produced = [0] * len(asked.output_tokens)

    def start(self) -> None:
        asked = self._asked
        self._exchange.gone = self.leave
        self._answer.begin()
        for index, output_tokens in enumerate(asked.output_tokens):
            prompt = asked.prompts[index // asked.answers]
            key = self._emulator.next_key()
            self._keys.append(key)
            # Further answers to one prompt find it in the prefix cache.
            cached = prompt.tokens if index % asked.answers else 0
            self._emulator.submit(
                Work(
                    key=key,
                    prompt_tokens=prompt.tokens,
                    output_tokens=output_tokens,
                    priority=asked.priority,
                    cached_tokens=cached,
                ),
                self,
                index,
            )

    def token(self, index: int, *, finished: bool) -> None:
        self._produced[index] += 1
        if finished:
            self._count(index)
            if self._is_last_open(index):
                self._emulator.ended(self, status=200)
        self._answer.token(index, finished=finished)

    def leave(self) -> None:
        """The client is gone."""
        for key in self._keys:
            self._emulator.forget(key)
        self._emulator.ended(self, status=200)

    def abort(self) -> None:
        """The engine is shut down below it."""
        for key in self._keys:
            self._emulator.forget(key)
        self._answer.abort()

    @property
    def path(self) -> str:
        return self._exchange.request.path

    def _is_last_open(self, index: int) -> bool:
        lengths = self._asked.output_tokens
        return all(
            at == index or produced >= length
            for at, (produced, length) in enumerate(zip(self._produced, lengths, strict=True))
        )

    def _count(self, index: int) -> None:
        asked = self._asked
        produced = self._produced[index]
        self._emulator.count_finished(
            self._keys[index],
            reason="stop" if produced < asked.maximum_tokens else "length",
            prompt_tokens=asked.prompts[index // asked.answers].tokens,
            output_tokens=produced,
            maximum_tokens=asked.maximum_tokens,
        )


class Emulator:
    """The server. `start` it, `stop` it; `port` is where it listens."""

    def __init__(self, settings: EmulatorSettings) -> None:
        self._settings = settings
        self._reading = ReadingSettings(
            model=settings.model,
            max_model_len=settings.max_model_len,
            output_lengths=settings.output_lengths,
        )
        self.metrics = EngineMetrics(
            model=settings.model, limits=settings.limits, max_model_len=settings.max_model_len
        )
        self._loop = asyncio.get_running_loop()
        self.engine = LiveEngine(
            EngineModel(settings.pod, settings.limits),
            speed=settings.speed,
            observer=self.metrics,
            loop=self._loop,
        )
        self._keys = itertools.count(1)
        self._connections: set[ServerProtocol] = set()
        self._generations: set[_Generation] = set()
        self._server: asyncio.Server | None = None
        self._stopping = False
        self._idle = asyncio.Event()
        self._routes: dict[tuple[str, str], Callable[[Exchange], None]] = {
            ("GET", "/health"): self._ok,
            ("GET", "/ping"): self._ok,
            ("POST", "/ping"): self._ok,
            ("GET", "/version"): lambda exchange: self._json(exchange, {"version": VERSION}),
            ("GET", "/load"): lambda exchange: self._json(exchange, {"server_load": 0}),
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/tokenize"): self._tokenize,
            ("POST", "/detokenize"): self._detokenize,
            ("POST", "/v1/messages/count_tokens"): self._count_tokens,
            **{("POST", api.value): self._generate for api in Api},
        }

    async def start(self, host: str, port: int) -> None:
        self._server = await self._loop.create_server(
            lambda: ServerProtocol(self._handle, self._connections), host, port, backlog=4096
        )

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    async def stop(self, *, timeout_s: float = 0.0) -> None:
        """Close the port; running answers have `timeout_s` to finish, then end as aborted."""
        self._stopping = True
        if self._server is not None and timeout_s <= 0:
            self._server.close()
        if self._generations and timeout_s > 0:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_s)
        for generation in list(self._generations):
            generation.abort()
        self._generations.clear()
        self.engine.stop()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()
        if self._server is not None:
            await self._server.wait_closed()

    def next_key(self) -> int:
        return next(self._keys)

    def submit(self, work: Work, generation: _Generation, index: int) -> None:
        self.metrics.sequence_arrived(
            work.key, prompt_tokens=work.prompt_tokens, now_s=self._loop.time()
        )
        self.engine.submit(work, sink=generation, index=index)

    def forget(self, key: int) -> None:
        self.metrics.sequence_aborted(key)
        self.engine.abort(key)

    def count_finished(self, key: int, **numbers: int | str) -> None:
        self.metrics.sequence_finished(key, now_s=self._loop.time(), **numbers)  # type: ignore[arg-type]

    def ended(self, generation: _Generation, *, status: int) -> None:
        self._generations.discard(generation)
        self.metrics.answered(generation.path, method="POST", status=status)
        if not self._generations:
            self._idle.set()

    def _handle(self, exchange: Exchange) -> None:
        request = exchange.request
        route = self._routes.get((request.method, request.path))
        if route is None:
            self._refuse_path(exchange)
            return
        try:
            route(exchange)
        except RefusedError as error:
            self.metrics.answered(request.path, method=request.method, status=error.status)
            exchange.answer(error.status, to_json(_error(error, path=request.path)))

    def _refuse_path(self, exchange: Exchange) -> None:
        allowed = [method for method, path in self._routes if path == exchange.request.path]
        if allowed:
            exchange.answer(
                405,
                to_json({"detail": "Method Not Allowed"}),
                headers=(("allow", ", ".join(allowed)),),
            )
        else:
            exchange.answer(404, to_json({"detail": "Not Found"}))

    def _generate(self, exchange: Exchange) -> None:
        request = exchange.request
        api = Api(request.path)
        asked = read_generating(api, request, settings=self._reading)
        if self._stopping:
            raise RefusedError(
                500,
                "cannot schedule new futures after shutdown",
                kind="InternalServerError",
                parameter=None,
            )
        bound = self._settings.max_num_queued_reqs
        if bound is not None and self.engine.statistics().waiting >= bound:
            self.metrics.rejected()
            raise RefusedError(
                503,
                "The engine is currently busy and cannot accept new requests. Please try again"
                " later or on a different instance.",
                kind="Service Unavailable",
                parameter=None,
            )
        answer = make_answer(asked, exchange, name=asked.request_id or secrets.token_hex(8))
        generation = _Generation(self, asked, exchange, answer)
        self._generations.add(generation)
        generation.start()

    def _ok(self, exchange: Exchange) -> None:
        exchange.answer(200)

    def _json(self, exchange: Exchange, value: object) -> None:
        exchange.answer(200, to_json(value))

    def _metrics(self, exchange: Exchange) -> None:
        text = self.metrics.render(self.engine.statistics(), lag=self.engine.lag())
        exchange.answer(200, text.encode(), content_type=CONTENT_TYPE)

    def _models(self, exchange: Exchange) -> None:
        name = self._settings.model
        created = now_epoch_s()
        permission = {
            "id": f"modelperm-{secrets.token_hex(8)}",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        model = {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": name,
            "parent": None,
            "max_model_len": self._settings.max_model_len,
            "permission": [permission],
        }
        self._json(exchange, {"object": "list", "data": [model]})

    def _tokenize(self, exchange: Exchange) -> None:
        fields = read_body(exchange.request)
        check_model(fields, settings=self._reading)
        if "messages" in fields.body:
            tokens = [0] * chat_prompt(fields).tokens
        else:
            tokens = tokenize(str(fields.required("prompt")))
        self._json(
            exchange,
            {
                "count": len(tokens),
                "max_model_len": self._settings.max_model_len,
                "tokens": tokens,
                "token_strs": None,
            },
        )

    def _detokenize(self, exchange: Exchange) -> None:
        fields = read_body(exchange.request)
        check_model(fields, settings=self._reading)
        tokens = [token for token in fields.items("tokens") if isinstance(token, int)]
        self._json(exchange, {"prompt": detokenize([abs(token) for token in tokens])})

    def _count_tokens(self, exchange: Exchange) -> None:
        fields: Fields = read_body(exchange.request)
        check_model(fields, settings=self._reading)
        tokens = chat_prompt(fields).tokens
        self._json(
            exchange,
            {"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}},
        )


def _error(error: RefusedError, *, path: str) -> dict[str, object]:
    """vLLM's two error shapes; validation errors have the first one everywhere."""
    anthropic = path.startswith(Api.MESSAGES.value) and error.kind != "Bad Request"
    if anthropic:
        return {"type": "error", "error": {"type": error.kind, "message": error.message}}
    return {
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": error.parameter,
            "code": error.status,
        }
    }
