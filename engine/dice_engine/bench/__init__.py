"""``dice bench``: what decoding and verification cost on this machine. ``dice bench lsp`` is in ``dice_ls``."""
