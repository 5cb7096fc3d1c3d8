"""What holds for all tests: hypothesis counts examples, and never how long one took."""

from hypothesis import HealthCheck, settings

settings.register_profile("giveway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("giveway")
