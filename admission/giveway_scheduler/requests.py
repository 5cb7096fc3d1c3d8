"""What the scheduler knows of one request.

A `Request` is what the shell offers; it never changes. Everything that happens to it afterwards is
the scheduler's own state. Tokens are LLM tokens; a cost is an estimate until the engine has
reported its usage.

What is made anew for every request (here and in `decisions.py`) is not declared frozen: Python
makes a frozen instance with a call for each field, which was a sixth of all that a request costs.
Nothing changes it all the same.
"""

from dataclasses import dataclass
from typing import NewType

TenantName = NewType("TenantName", str)
ClassName = NewType("ClassName", str)
RequestKey = NewType("RequestKey", int)
"""Unique among all requests of a process; given by the shell, increasing."""


@dataclass(slots=True, kw_only=True)
class Request:
    """One request as it is offered to the scheduler.

    `rank` is the class it may be served in (0 goes first), after the tenant's ceiling was applied.
    """

    key: RequestKey
    rank: int
    tenant: TenantName
    prompt_tokens: int
    """Estimated prompt tokens of all prompts in the request together, at least 1."""
    maximum_output_tokens: int | None = None
    """The client's own bound on output, times the number of answers. None: the client gave none."""
    answers: int = 1
    """How many answers are asked for (n x prompts): scales the estimate if there is no bound."""
    size_bytes: int = 0
    """Memory that the request holds while it waits."""
    patience_s: float | None = None
    """The client's own time to live in the queue; can only shorten the class's. None: no wish."""
    name: str = ""
    """The client's request id: what `waits_for` of another request refers to. "": has none."""
    workflow: str | None = None
    """The workflow it belongs to. None: none was named."""
    waits_for: str | None = None
    """The `name` of the request whose result this one needs. None: it waits for nothing."""
    ceiling_rank: int = 0
    """The highest class of its tenant: a request that it waits for is never lifted above this."""
    shows_first_token: bool = True
    """False: not streamed, so nothing is seen of it before its end."""
    repeatable: bool = True
    """False: its body is not kept once it was sent, so that it can't be sent a second time."""


@dataclass(slots=True, kw_only=True)
class Usage:
    """Tokens of one finished request, as the engine reported them, or as they were counted."""

    prompt_tokens: int
    cached_tokens: int = 0
    """The part of `prompt_tokens` that the engine took from its prefix cache."""
    output_tokens: int = 0
