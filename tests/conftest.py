"""What holds for all tests: hypothesis counts examples, and never how long one took."""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("giveway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("giveway")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background like that, and what tests start inherits it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
