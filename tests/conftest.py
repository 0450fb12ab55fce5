"""For every test: Hypothesis measures no time, since a slow machine is no fault of what is tested."""

from hypothesis import HealthCheck, settings

settings.register_profile("reconciled", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("reconciled")
