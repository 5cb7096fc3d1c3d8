"""Everything that is set for one proxy process, and not by the policy.

The policy says who goes first and how long anybody waits; this says where the process listens,
what it stands before, and how much of anything it takes from a stranger.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where kubelet puts what a pod is known by."""
KIB = 1024
MIB = 1024 * KIB


class ClientCredentials(StrEnum):
    """What becomes of `Authorization` and `X-Api-Key` on the way to the engine."""

    AUTO = "auto"
    """They are dropped if the policy recognises tenants by API key, since then they are for
    giveway; else they go on, so that putting giveway before an engine breaks nobody."""
    DROP = "drop"
    """They are for giveway alone."""
    FORWARD = "forward"
    """The engine sees them too: for an engine that checks the clients' keys itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """All settings of `giveway serve`; names and units as its flags."""

    upstream: str
    """The engine's base URL, http or https, with an optional path before all of its paths."""
    policy: Path | None = None
    """A file or folder of SLOPolicy and TenantPriority documents. None: see `policy_document`."""
    policy_document: Path | None = None
    """A folder with the compiled policy document, as mounted from a ConfigMap. None with `policy`
    None: the built-in three classes."""
    watch_config_map: str | None = None
    """`namespace/name` of the ConfigMap with policy documents, watched through the API server
    beside `policy_document` or instead of it. None: it is not."""
    kube_api: str | None = None
    """URL of the API server. None: that of the cluster that this runs in."""
    kube_token_file: Path = SERVICE_ACCOUNT / "token"
    kube_ca_file: Path = SERVICE_ACCOUNT / "ca.crt"
    key_digests: Path | None = None
    """A folder with digests of API keys, as mounted from a Secret. None: they are in the policy
    document."""
    policy_name: str | None = None
    """Which of several policies there: `name` or `namespace/name`. None: there has to be one."""
    host: str = "0.0.0.0"  # noqa: S104 - the proxy is there to be reached, as the engine was
    port: int = 8080
    """Data port. 0: chosen by the system and told on standard output."""
    admin_host: str = "0.0.0.0"  # noqa: S104 - probes of the node and Prometheus come from outside
    admin_port: int = 9090

    header_timeout_s: float = 10.0
    """From the first byte of a request head to its last. Heads fit one packet; only a stuck or
    hostile client needs longer."""
    body_timeout_s: float = 60.0
    """In every such time a body has to end or bring 256 KiB more: whoever is slower is cut."""
    write_timeout_s: float = 60.0
    """A client that takes nothing of its answer for this long is cut, so that it can't hold a
    seat (C06)."""
    minimum_read_bytes_per_s: int = KIB
    """A client whose answer is held up for a whole `write_timeout_s` and that took less than so
    much of it is cut too: a byte a minute would hold a seat for ever. A tenth of what a slow phone
    reads, and of what a stream at the pace of reading needs. 0: only standing still counts."""
    keep_alive_s: float = 620.0
    """Idle time after which a client's connection is closed. Longer than the 600 s of the most
    patient common balancer, so that the balancer closes first and never loses a request (A40)."""
    linger_s: float = 2.0
    """After a refusal that leaves a body unread: how long the rest is read and thrown away, so
    that the client sees the answer instead of a reset (A19)."""

    maximum_head_bytes: int = 64 * KIB
    """Request line and headers. Long JWTs and many cookies fit (A27)."""
    maximum_headers: int = 256
    maximum_body_bytes: int = 64 * MIB
    buffered_body_bytes: int = 256 * KIB
    """A longer body stays in the client's socket while its request waits, and streams through
    when its turn has come; the first part is kept, to be judged."""
    maximum_arriving_bytes: int = 256 * MIB
    """All clients' heads and bodies together that have not been judged yet (`arriving`): as much as
    1,024 clients with long bodies on their way at once. Small requests do not count."""
    arriving_wait_s: float = 10.0
    """How long a body stays in its socket for want of room before it is refused. A guess: who
    sends without pause is through in a second."""
    maximum_connections: int = 16_384
    """Clients at once; one more is refused with 429. Lowered to what the file limit allows."""
    backlog: int = 2048
    """Connections that the system may hold before they are accepted: a burst comes all at once."""

    engine_idle_pool_s: float = 4.0
    """Idle time after which a connection to the engine is not used again. vLLM closes after 5 s;
    what is closed on both sides at once costs a retry (A20)."""
    engine_api_key: str | None = None
    """Sent to the engine as bearer token. None: none is."""
    client_credentials: ClientCredentials = ClientCredentials.AUTO
    probe_first_s: float = 0.1
    """First wait before asking an engine that failed whether it is there again."""
    probe_longest_s: float = 1.0
    """The wait doubles up to this. An engine that is back is in use within this time."""

    probe_interval_s: float = 5.0
    """How often an engine that is there is asked whether it still is. Only for `/readyz` and the
    metrics: requests notice by themselves."""

    tickets: Path | None = None
    """Folder in which tickets are kept. None: none are given."""
    ticket_attempts: int = 3
    """How many processes may send a ticket's request to the engine: one that makes the proxy die
    with it is given up."""
    ticket_retention_s: float = 24 * 3600.0
    """How long an answer is kept for its owner to fetch it."""
    ticket_longest_wait_s: float = 60.0
    """The longest `wait` of a client before it gets its ticket."""
    ticket_maximum_count: int = 10_000
    """Tickets at once, open and finished; one more is refused with 429. A guess."""
    ticket_maximum_bytes: int = 256 * MIB
    """Their bodies and answers together. Bodies of open tickets are in memory too."""
    ticket_maximum_answer_bytes: int = 16 * MIB
    """A longer answer is given up, and the ticket fails."""

    drain_timeout_s: float = 120.0
    """How long running answers may go on after SIGTERM. A guess: most pods' answers end sooner;
    the pod's grace period has to be longer."""
    drain_token: str | None = None
    """What `/drain` asks for. None: nothing."""
    log_level: str = "info"
    log_format: str = "json"
    access_log: bool = False
    """A line for every request. Off: a line costs more than all else that is done for it."""
