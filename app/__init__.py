"""Talaria: a self-hosted relay that puts a Hermes Agent on its owner's phone."""

__version__ = "0.1.0"
