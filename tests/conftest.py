from hypothesis import settings

# The same examples in every run, and no deadline: timings on shared machines are noise.
settings.register_profile("dcgraph", derandomize=True, deadline=None)
settings.load_profile("dcgraph")
