"""What can a TenantPriority say?"""

from typing import Any, Literal

from pydantic import Field

from giveway_policy.fields import ClassName, HeaderName, HeaderValue, Model, TenantName, Text
from giveway_policy.limits import TenantLimits
from giveway_policy.resources import Metadata, SecretReference, SourceClass


class ApiKey(Model):
    secret_ref: SecretReference | None = Field(
        default=None, description="Secret of which every value is one API key."
    )
    key_file: Text | None = Field(
        default=None,
        description="File with one API key a line, relative to this resource's file. Blank lines "
        "and lines that begin with # are skipped. Only without Kubernetes.",
    )


class HeaderMatch(Model):
    name: HeaderName = Field(
        description="Name of a header that a gateway before giveway sets, and clients cannot. "
        "Naming it here is the trust in it."
    )
    value: HeaderValue = Field(description="Value that it has for this tenant, compared exactly.")


class JwtClaim(Model):
    claim: Text = Field(description="Name of the claim.")
    value: Text = Field(description="Value that it has for this tenant, compared exactly.")


class Recognition(Model):
    api_key: ApiKey | None = Field(
        default=None,
        description="By an API key in Authorization: Bearer or X-Api-Key.",
    )
    header: HeaderMatch | None = Field(default=None, description="By a header's value.")
    jwt_claim: JwtClaim | None = Field(
        default=None, description="By a claim of a verified JSON Web Token."
    )


class TenantPrioritySpec(Model):
    tenant: TenantName = Field(
        description="Name of the tenant in metrics, logs and answers. It cannot be changed later."
    )
    maximum_class: ClassName = Field(
        description="Highest class that the tenant may have. A request may ask for a lower one, "
        "never for a higher."
    )
    default_class: ClassName | None = Field(
        default=None,
        description="Class of a request that names none and whose source decides none. Default: "
        "maximumClass.",
    )
    sources: tuple[SourceClass, ...] = Field(
        default=(),
        max_length=256,
        description="Class by the source that a request states. Goes before the policy's sources.",
    )
    weight: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="Share inside a class, relative to the other tenants that have work there.",
    )
    limits: TenantLimits = Field(
        default_factory=TenantLimits,
        description="What all requests of the tenant together may use, whatever their class.",
    )
    recognized_by: tuple[Recognition, ...] = Field(
        default=(),
        max_length=64,
        description="How a request of the tenant is known; any one of them is enough.",
    )


class TenantPriority(Model):
    """Who a tenant is, how high it may go, and how much it may use."""

    api_version: Literal["giveway.dev/v1alpha1"] = Field(description="giveway.dev/v1alpha1")
    kind: Literal["TenantPriority"] = Field(description="TenantPriority")
    metadata: Metadata = Field(description="Name.")
    spec: TenantPrioritySpec = Field(description="What is wanted.")
    status: dict[str, Any] | None = Field(
        default=None, description="What the operator reports. Ignored in a file."
    )
