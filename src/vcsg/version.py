"""The version of the library, where every module can read it."""

__version__ = "0.1.0"
