"""The DICE language server: LSP in front of the engine. Never imports torch."""

__version__ = "0.1.0"
