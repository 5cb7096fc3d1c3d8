"""What is to be sent, and what became of it? The records of a load run."""

from array import array
from dataclasses import dataclass, field
from enum import StrEnum


class Ending(StrEnum):
    """How a planned request ended."""

    COMPLETED = "completed"
    REFUSED = "refused"
    """An HTTP status of 400 or more."""
    FAILED = "failed"
    """The connection or the stream broke, or the stream carried an error."""
    UNFINISHED = "unfinished"
    """Still waiting or streaming when the window ended."""
    NOT_SENT = "not sent"
    """More than `MAXIMUM_OPEN` were in flight: the client itself is the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request to be sent."""

    due_s: float
    """Seconds after the start of the run."""
    class_name: str
    tenant: str
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True, kw_only=True)
class Measured:
    """What became of one planned request. Times are seconds after the start of the run."""

    planned: PlannedRequest
    sent_s: float | None = None
    """None: not sent (yet)."""
    token_times_s: "array[float]" = field(default_factory=lambda: array("d"))
    """When each event with output arrived."""
    end_s: float | None = None
    """None: not ended yet."""
    ending: Ending | None = None
    status: int | None = None
    """None: no HTTP answer (yet)."""
    served_class: str | None = None
    """The class that giveway served it in. None: not told, as by an engine itself."""
    usage_prompt_tokens: int | None = None
    """What the engine counted. None: it did not say (yet)."""
    usage_output_tokens: int | None = None
    error: str | None = None
    """What the server said or what broke. None: nothing."""

    @property
    def first_token_latency_s(self) -> float | None:
        """From the due time to the first output. None: there is none (yet)."""
        return self.token_times_s[0] - self.planned.due_s if self.token_times_s else None

    @property
    def prompt_tokens(self) -> int:
        """As the engine counted, else as planned."""
        return self.usage_prompt_tokens or self.planned.prompt_tokens

    @property
    def output_tokens(self) -> int:
        """As the engine counted, else the events that arrived."""
        return self.usage_output_tokens or len(self.token_times_s)
