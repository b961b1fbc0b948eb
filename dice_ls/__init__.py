"""The DICE language server: LSP in front of the engine. Never imports torch."""
