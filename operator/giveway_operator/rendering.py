"""What is to be published, given what is there and what was decided?

Pure: everything the operator writes follows from a snapshot, the weights, the epoch and the numbers
that were given before. What always holds:

- A document gets a new number only if its content changed; an operator that starts anew renders
  what is published already.
- (epoch, generation) of a policy never falls, also when its document was deleted meanwhile.
- A resource that does not make sense is left out alone, its last good version stays, its status
  says so.
- No digest of an API key is in a ConfigMap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from giveway_policy.documents import (
    DocumentError,
    PolicyDocument,
    PolicyName,
    make_document,
    renumber,
)
from giveway_policy.faults import Fault
from giveway_policy.keeping import compile_keeping, marked
from giveway_policy.key_digests import without_digests
from giveway_policy.resources import SLOPolicySpec

from giveway_operator.candidates import find_candidates
from giveway_operator.packing import Contents, pack_digests, pack_documents
from giveway_operator.snapshots import Snapshot

Order = tuple[int, int]
"""Epoch and generation."""
Deciding = Callable[[PolicyName, SLOPolicySpec, PolicyDocument | None], Mapping[str, float]]
"""Which weights a policy is to have, given its spec and what is published of it. {}: its own."""


def as_published(
    _name: PolicyName, _spec: SLOPolicySpec, published: PolicyDocument | None
) -> Mapping[str, float]:
    return published.weights if published else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """All that is to be there, also where it is there already."""

    config_maps: Mapping[str, Contents] = field(default_factory=dict)
    """By namespace. Without values: there is to be none."""
    digest_secrets: Mapping[str, Contents] = field(default_factory=dict)
    documents: Mapping[PolicyName, PolicyDocument] = field(default_factory=dict)
    """What is in force, for each policy that has a document."""
    faults: tuple[Fault, ...] = ()
    misfits: tuple[Fault, ...] = ()
    refused: Mapping[PolicyName, str] = field(default_factory=dict)
    """Policies whose newest document could not be published for its size, and why."""


def render(
    snapshot: Snapshot,
    *,
    epoch: int,
    weights: Deciding = as_published,
    highest: Mapping[PolicyName, Order] | None = None,
) -> Rendering:
    """`highest`: numbers that were given before, besides those in documents and statuses."""
    published = snapshot.published
    candidates = find_candidates(snapshot, published)
    kept = compile_keeping(candidates.policies, candidates.tenants, candidates.good)
    numbers = _numbers(snapshot, published, highest or {})
    wanted: dict[PolicyName, PolicyDocument] = {}
    digests: dict[str, dict[str, tuple[str, ...]]] = {}
    for compiled in kept.documents:
        name = compiled.policy
        before = published.get(name)
        document = _document(compiled, weights(name, compiled.spec, before))
        if before is not None and before.hash == document.hash:
            wanted[name] = before
        else:
            number = _next(numbers.get(name), epoch)
            wanted[name] = renumber(document, epoch=number[0], generation=number[1])
        tenants = digests.setdefault(name.namespace, {})
        tenants |= {each.name: each.key_digests for each in compiled.tenants if each.key_digests}
    return _packed(
        snapshot,
        published,
        wanted,
        digests=digests,
        faults=marked((*candidates.faults, *kept.faults), kept.good),
        misfits=kept.misfits,
    )


def _document(compiled: PolicyDocument, decided: Mapping[str, float]) -> PolicyDocument:
    bare = without_digests(compiled)
    fitting = _fitting(bare.spec, decided)
    try:
        return make_document(bare.policy, bare.spec, tenants=bare.tenants, weights=fitting)
    except DocumentError:  # all of the classes that are left had 0
        return make_document(bare.policy, bare.spec, tenants=bare.tenants)


def _fitting(spec: SLOPolicySpec, decided: Mapping[str, float]) -> dict[str, float]:
    """The weights of classes that are there; none at all if they are the policy's own."""
    base = {each.name: float(each.weight) for each in spec.classes}
    found = {name: weight for name, weight in decided.items() if name in base}
    return {} if all(base[name] == weight for name, weight in found.items()) else found


def _numbers(
    snapshot: Snapshot,
    published: Mapping[PolicyName, PolicyDocument],
    highest: Mapping[PolicyName, Order],
) -> dict[PolicyName, Order]:
    """The highest number that each policy was ever seen with."""
    numbers = dict(highest)
    for name, document in published.items():
        numbers[name] = max(document.order, numbers.get(name, (0, 0)))
    for written in snapshot.policies:
        told = written.status.get("published")
        if isinstance(told, dict):
            order = (told.get("epoch"), told.get("generation"))
            if isinstance(order[0], int) and isinstance(order[1], int):
                name = PolicyName(namespace=written.namespace, name=written.name)
                numbers[name] = max((order[0], order[1]), numbers.get(name, (0, 0)))
    return numbers


def _next(highest: Order | None, epoch: int) -> Order:
    """The generation goes on counting over epochs, so that either alone tells what is newer."""
    before = highest or (0, 0)
    return max(epoch, before[0]), before[1] + 1


def _packed(
    snapshot: Snapshot,
    published: Mapping[PolicyName, PolicyDocument],
    wanted: Mapping[PolicyName, PolicyDocument],
    *,
    digests: Mapping[str, Mapping[str, tuple[str, ...]]],
    faults: tuple[Fault, ...],
    misfits: tuple[Fault, ...],
) -> Rendering:
    config_maps: dict[str, Contents] = {}
    secrets: dict[str, Contents] = {}
    documents = dict(wanted)
    refused: dict[PolicyName, str] = {}
    for namespace in {*snapshot.config_maps, *(name.namespace for name in wanted)}:
        of_namespace = [each for name, each in wanted.items() if name.namespace == namespace]
        packed = pack_documents(of_namespace, snapshot.config_maps.get(namespace))
        config_maps[namespace] = packed.contents
        for each, why in packed.refused.items():
            name = PolicyName(namespace=namespace, name=each)
            refused[name] = why
            if name in published:
                documents[name] = published[name]
            else:
                del documents[name]
    for namespace in {*snapshot.digest_secrets, *digests}:
        contents = pack_digests(digests.get(namespace, {}))
        if contents is None:
            why = "the digests of all API keys do not fit into a Secret, which holds 1 MiB"
            refused |= {name: why for name in wanted if name.namespace == namespace}
            continue
        secrets[namespace] = contents
    return Rendering(
        config_maps=config_maps,
        digest_secrets=secrets,
        documents=documents,
        faults=faults,
        misfits=misfits,
        refused=refused,
    )
