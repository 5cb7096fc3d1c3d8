"""What does a request cost, and who pays it? (H3, A8)

A request pays one permit and its tokens (prompt, and an estimate of its output) out of its class's
and its tenant's budget, all or nothing. What it really used replaces the estimate at its end: the
rest is refunded, an excess is charged further. A request that never reached the engine gives
everything back, as if it had not come; one that the engine did no work for gives its tokens back
and not its permits, so that a client whose calls keep failing is still limited.

Every token is accounted for: `reserved + overrun = charged + refunded + held`.
"""

from giveway_scheduler.decisions import RejectReason
from giveway_scheduler.entries import Entry
from giveway_scheduler.requests import Request, Usage
from giveway_scheduler.settings import Settings
from giveway_scheduler.statistics import LedgerStatistics


class Reservations:
    """Takes reservations, settles them, and keeps the ledger."""

    __slots__ = (
        "_cached_ratio",
        "_charged",
        "_held",
        "_largest_output_tokens",
        "_overrun",
        "_refunded",
        "_reserved",
    )

    def __init__(self, settings: Settings) -> None:
        self._reserved = 0.0
        self._overrun = 0.0
        self._charged = 0.0
        self._refunded = 0.0
        self._held = 0.0
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        """Follow new settings, for what is reserved or settled from now on."""
        self._largest_output_tokens = settings.largest_output_estimate_tokens
        self._cached_ratio = settings.cached_token_ratio

    def cost_tokens(self, request: Request, per_answer_tokens: int) -> int:
        """Tokens to reserve. `per_answer_tokens` stands in where the client gave no bound."""
        output = request.maximum_output_tokens
        if output is None:
            output = per_answer_tokens * request.answers
        if output > self._largest_output_tokens:
            output = self._largest_output_tokens
        return request.prompt_tokens + output

    def shortage(self, entry: Entry, now_s: float) -> tuple[RejectReason, float] | None:
        """What the entry lacks for longest, and for how many seconds. None: it can pay it all."""
        if not (entry.service_class.budget.is_limited or entry.tenant.budget.is_limited):
            return None
        reason: RejectReason | None = None
        longest_s = 0.0
        for budget, lacks_permit, lacks_tokens in (
            (
                entry.service_class.budget,
                RejectReason.CLASS_REQUESTS,
                RejectReason.CLASS_TOKENS,
            ),
            (entry.tenant.budget, RejectReason.TENANT_REQUESTS, RejectReason.TENANT_TOKENS),
        ):
            if budget.requests is not None:
                wait_s = budget.requests.wait_s(1.0, now_s=now_s)
                if wait_s > longest_s:
                    reason, longest_s = lacks_permit, wait_s
            if budget.tokens is not None:
                wait_s = budget.tokens.wait_s(entry.cost_tokens, now_s=now_s)
                if wait_s > longest_s:
                    reason, longest_s = lacks_tokens, wait_s
        return None if reason is None else (reason, longest_s)

    def reserve(self, entry: Entry, now_s: float) -> None:
        """Let the entry pay; what is lacking becomes debt."""
        tokens = entry.cost_tokens
        of_class = entry.class_budget = entry.service_class.budget
        of_tenant = entry.tenant_budget = entry.tenant.budget
        if of_class.is_limited:
            of_class.take(tokens=tokens, now_s=now_s)
        if of_tenant.is_limited:
            of_tenant.take(tokens=tokens, now_s=now_s)
        self._reserved += tokens
        self._held += tokens

    def withdraw(self, entry: Entry, *, now_s: float) -> None:
        """Give everything back: the request never came, as far as limits go."""
        tokens = entry.cost_tokens
        if entry.class_budget is None or entry.tenant_budget is None:
            return
        entry.class_budget.put_back(permits=1.0, tokens=tokens, now_s=now_s)
        entry.tenant_budget.put_back(permits=1.0, tokens=tokens, now_s=now_s)
        entry.class_budget = entry.tenant_budget = None
        self._refunded += tokens
        self._held -= tokens

    def charged_tokens(self, usage: Usage | None) -> float:
        """What a request that used this much is charged. None: nothing."""
        if usage is None:
            return 0.0
        charged = 0.0
        if usage.prompt_tokens > 0:
            charged += usage.prompt_tokens
        if usage.cached_tokens > 0:
            charged -= min(usage.cached_tokens, charged) * (1.0 - self._cached_ratio)
        if usage.output_tokens > 0:
            charged += usage.output_tokens
        return charged

    def settle(self, entry: Entry, charged_tokens: float, now_s: float) -> None:
        """Put what was really used in the place of the reservation."""
        of_class, of_tenant = entry.class_budget, entry.tenant_budget
        if of_class is None or of_tenant is None:
            return
        left = entry.cost_tokens - charged_tokens
        if of_class.is_limited:
            of_class.put_back(tokens=left, now_s=now_s)
        if of_tenant.is_limited:
            of_tenant.put_back(tokens=left, now_s=now_s)
        entry.class_budget = entry.tenant_budget = None
        self._held -= entry.cost_tokens
        self._charged += charged_tokens
        if left >= 0.0:
            self._refunded += left
        else:
            self._overrun -= left

    def statistics(self) -> LedgerStatistics:
        """The ledger now."""
        return LedgerStatistics(
            reserved_tokens=self._reserved,
            overrun_tokens=self._overrun,
            charged_tokens=self._charged,
            refunded_tokens=self._refunded,
            held_tokens=self._held,
        )
