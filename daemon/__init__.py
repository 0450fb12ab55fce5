"""The process: configuration, logging, assembly, signals, the command line, the demo and the stand-in provider."""
