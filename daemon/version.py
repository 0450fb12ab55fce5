"""Which release this is."""

from importlib import metadata


def version() -> str:
    """The version of the installed distribution."""
    try:
        return metadata.version("reconciled")
    except metadata.PackageNotFoundError:
        return "0+uninstalled"
