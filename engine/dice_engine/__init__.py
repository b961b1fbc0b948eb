"""The DICE engine: source understanding, block-diffusion decoding and verification."""
