"""Everything that is set for one operator process."""

from dataclasses import dataclass
from pathlib import Path

from giveway_operator.acknowledging import TIMEOUT_S
from giveway_operator.querying import PrometheusSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """All settings of `giveway operate`; names and units as its flags."""

    kubeconfig: Path | None = None
    """None: the pod's service account, else as kubectl finds it."""
    namespaces: tuple[str, ...] = ()
    """Where it looks for policies. Empty: the whole cluster."""
    prometheus: PrometheusSettings | None = None
    """None: weights are the policies' own, and nothing is measured."""
    prometheus_matchers: str = ""
    """PromQL matchers put into every query, like `cluster="eu"`."""
    acknowledge_timeout_s: float = TIMEOUT_S
    """How long proxies' new document is awaited before weights are decided again."""
    admin_host: str = "0.0.0.0"  # noqa: S104 - probes of the node and Prometheus come from outside
    admin_port: int = 9090
    lease_namespace: str = "giveway-system"
    lease_name: str = "giveway-operator"
    lease_duration_s: float = 20.0
    """How long others wait for a leader that is silent. Takeover is at most this and 3 s more."""
    resync_s: float = 30.0
    """After which a pass runs although nothing woke it: what a silent watch and a changed Secret
    may cost. Shorter than a person waits before looking for the fault."""
    shortest_pause_s: float = 1.0
    """Between two passes: a rollout changes many pods at once."""
    longest_backoff_s: float = 30.0
    """Between two attempts while the API server does not answer."""
    log_level: str = "info"
    log_format: str = "json"
