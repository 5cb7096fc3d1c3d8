"""Does a TenantPriority make sense, alone, under a policy, and beside the other tenants?"""

from collections.abc import Iterator

from giveway_policy.checks import RESERVED_TENANTS, check_limits, class_missing
from giveway_policy.faults import Path, Problem
from giveway_policy.resources import SLOPolicySpec
from giveway_policy.tenants import ApiKey, HeaderMatch, Recognition, TenantPrioritySpec

_KEY_HEADERS = frozenset({"authorization", "x-api-key"})


def check_tenant(tenant: TenantPrioritySpec) -> list[Problem]:
    """Everything that cannot work whatever the policy says."""
    return [*_check_name(tenant), *_check_limits(tenant), *_check_recognition(tenant)]


def check_tenant_under(tenant: TenantPrioritySpec, spec: SLOPolicySpec) -> list[Problem]:
    """Everything that cannot work under this policy."""
    return [*_check_classes(tenant, spec), *_check_fallback(tenant, spec)]


def _check_name(tenant: TenantPrioritySpec) -> Iterator[Problem]:
    if tenant.tenant in RESERVED_TENANTS:
        yield Problem(
            path=("spec", "tenant"),
            reason=f"{tenant.tenant} is what metrics say for many tenants together",
            fix="take another name",
        )


def _check_limits(tenant: TenantPrioritySpec) -> Iterator[Problem]:
    yield from check_limits(tenant.limits, ("spec", "limits"))


def _check_recognition(tenant: TenantPrioritySpec) -> Iterator[Problem]:
    for index, each in enumerate(tenant.recognized_by):
        path: Path = ("spec", "recognizedBy", index)
        given = [way for way in (each.api_key, each.header, each.jwt_claim) if way is not None]
        if len(given) != 1:
            yield Problem(
                path=path,
                reason="each entry names exactly one way",
                fix="write apiKey or header, and further ways as further entries",
            )
        yield from _check_way(each, path)


def _check_way(each: Recognition, path: Path) -> Iterator[Problem]:
    if each.api_key is not None:
        yield from _check_api_key(each.api_key, (*path, "apiKey"))
    if each.header is not None:
        yield from _check_header(each.header, (*path, "header", "name"))
    if each.jwt_claim is not None:
        yield Problem(
            path=(*path, "jwtClaim"),
            reason="JSON Web Tokens are not yet supported",
            fix="use apiKey, or a header that your gateway sets after verifying the token",
        )


def _check_api_key(api_key: ApiKey, path: Path) -> Iterator[Problem]:
    if (api_key.secret_ref is None) == (api_key.key_file is None):
        yield Problem(
            path=path,
            reason="the keys are in exactly one place",
            fix="write either secretRef or keyFile",
        )


def _check_header(header: HeaderMatch, path: Path) -> Iterator[Problem]:
    name = header.name.lower()
    if name in _KEY_HEADERS:
        yield Problem(
            path=path,
            reason=f"{header.name} carries the API key, which does not belong into a policy",
            fix="use apiKey",
        )
    elif name.startswith("x-giveway-"):
        yield Problem(
            path=path,
            reason=f"{header.name} is a header of giveway's own",
            fix="trust X-Giveway-Tenant in the policy's identity.trustedHeaders instead",
        )


def _check_classes(tenant: TenantPrioritySpec, spec: SLOPolicySpec) -> Iterator[Problem]:
    ceiling = spec.class_rank(tenant.maximum_class)
    if ceiling is None:
        yield class_missing(spec, tenant.maximum_class, ("spec", "maximumClass"))
    if tenant.default_class is not None:
        yield from _check_below(tenant.default_class, tenant, spec, path=("spec", "defaultClass"))
    seen: set[str] = set()
    for index, each in enumerate(tenant.sources):
        path: Path = ("spec", "sources", index)
        yield from _check_below(each.class_name, tenant, spec, path=(*path, "class"))
        if each.source in seen:
            yield Problem(
                path=(*path, "source"),
                reason=f"the source {each.source} stands twice",
                fix="keep one of them",
            )
        seen.add(each.source)


def _check_below(
    name: str, tenant: TenantPrioritySpec, spec: SLOPolicySpec, *, path: Path
) -> Iterator[Problem]:
    ceiling, rank = spec.class_rank(tenant.maximum_class), spec.class_rank(name)
    if rank is None:
        yield class_missing(spec, name, path)
    elif ceiling is not None and rank < ceiling:
        yield Problem(
            path=path,
            reason=f"{name} is above {tenant.maximum_class}, the highest class of the tenant",
            fix="take maximumClass or a class after it",
        )


def _check_fallback(tenant: TenantPrioritySpec, spec: SLOPolicySpec) -> Iterator[Problem]:
    """The fallback tenant may have limits and a weight; its classes are the policy's to say."""
    identity = spec.identity
    if tenant.tenant != identity.fallback_tenant:
        return
    default = tenant.default_class or tenant.maximum_class
    if (tenant.maximum_class, default) != (
        identity.fallback_class,
        identity.fallback_default_class,
    ):
        yield Problem(
            path=("spec", "maximumClass"),
            reason=f"{tenant.tenant} is the policy's fallback tenant, and the policy says other "
            "classes for it",
            fix=f"write maximumClass: {identity.fallback_class} and "
            f"defaultClass: {identity.fallback_default_class}, or change the policy's identity",
        )
