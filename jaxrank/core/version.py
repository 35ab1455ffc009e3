"""The version, from the installed package's metadata."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("jaxrank")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
