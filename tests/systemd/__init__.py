"""The unit in a booted machine: `run` makes and boots one, `inside` runs in it, `probes` in the sandbox."""
