"""What the daemon costs, measured from outside: real processes, real sockets, ratios to a floor from the same run."""
