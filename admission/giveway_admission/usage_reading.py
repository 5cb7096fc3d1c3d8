"""How many tokens does the engine say a request took, and can that be believed?

Engines lie: fields are null, negative, text, fractions, or absurd. A field that can't be true
counts as not reported, and what was reported before it stays. Totals replace each other and are
never added up: an engine that reports on every event reports running totals.
"""

from giveway_scheduler import Usage

from giveway_admission.endpoints import Dialect

LARGEST_CREDIBLE_TOKENS = 10_000_000
"""No context window holds as much, so more than this is an error and no report."""


class UsageReport:
    """What was reported so far."""

    __slots__ = ("_cached", "_dialect", "_output", "_prompt", "doubtful")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._prompt: int | None = None
        self._output: int | None = None
        self._cached = 0
        self.doubtful = False
        """Something was reported that can't be true."""

    def add(self, report: object, *, final: bool = True) -> None:
        """A `usage` object. `final` false: its output count is a placeholder."""
        if not isinstance(report, dict):
            self.doubtful = self.doubtful or report is not None
            return
        if self._dialect is Dialect.ANTHROPIC_MESSAGES:
            self._add_anthropic(report, final=final)
            return
        prompt = self._count(report, "prompt_tokens", "input_tokens")
        output = self._count(report, "completion_tokens", "output_tokens")
        total = self._count(report, "total_tokens")
        if total is not None:
            if prompt is None and output is not None and total >= output:
                prompt = total - output
            elif output is None and prompt is not None and total >= prompt:
                output = total - prompt
        details = report.get("prompt_tokens_details") or report.get("input_tokens_details")
        if isinstance(details, dict):
            self._cached = self._count(details, "cached_tokens") or self._cached
        self._keep(prompt, output)

    def reported(self) -> Usage | None:
        """The report, if it says both prompt and output."""
        if self._prompt is None:
            return None
        if self._output is None:
            if self._dialect is not Dialect.EMBEDDINGS:
                return None
            return self._usage(self._prompt, 0)
        return self._usage(self._prompt, self._output)

    def charge(self, *, prompt_tokens: int, output_tokens: int) -> Usage:
        """The report, completed by what we estimated and counted ourselves."""
        return self._usage(
            prompt_tokens if self._prompt is None else self._prompt,
            output_tokens if self._output is None else self._output,
        )

    def _add_anthropic(self, report: dict[object, object], *, final: bool) -> None:
        """`input_tokens` leaves out what was read from or written to the cache."""
        prompt = self._count(report, "input_tokens")
        cached = self._count(report, "cache_read_input_tokens")
        if prompt is not None:
            prompt += (cached or 0) + (self._count(report, "cache_creation_input_tokens") or 0)
            self._cached = cached or self._cached
        self._keep(prompt, self._count(report, "output_tokens") if final else None)

    def _keep(self, prompt: int | None, output: int | None) -> None:
        if prompt is not None:
            self._prompt = prompt
        if output is not None:
            self._output = output

    def _usage(self, prompt: int, output: int) -> Usage:
        return Usage(
            prompt_tokens=prompt, cached_tokens=min(self._cached, prompt), output_tokens=output
        )

    def _count(self, report: dict[object, object], *names: str) -> int | None:
        """The first credible count among `names`. None: none is there."""
        for name in names:
            value = report.get(name)
            if type(value) is int and 0 <= value <= LARGEST_CREDIBLE_TOKENS:
                return value
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if type(value) is int and 0 <= value <= LARGEST_CREDIBLE_TOKENS:
                return value
            self.doubtful = True
        return None
