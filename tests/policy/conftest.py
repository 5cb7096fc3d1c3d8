"""Properties are about values, not about time: a loaded machine fails none of them."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
