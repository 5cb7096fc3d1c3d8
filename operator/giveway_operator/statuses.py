"""What does the operator report?"""

from enum import StrEnum


class ObservationState(StrEnum):
    """Whether an objective could be measured. Only `Measured` says how well it is kept."""

    MEASURED = "Measured"
    NO_TRAFFIC = "NoTraffic"
    TOO_FEW_REQUESTS = "TooFewRequests"
    NO_SERIES = "NoSeries"
    QUERY_FAILED = "QueryFailed"
    PARTIAL_RESPONSE = "PartialResponse"
