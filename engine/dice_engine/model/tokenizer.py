"""A checkpoint's tokenizer: exact encoding and decoding, special tokens by name, ids that end a reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from dice_engine.model.config import CheckpointError, SdarConfig

SPECIALS = (
    "<|endoftext|>",
    "<|mask|>",
    "<|pad|>",
    "<|kernel_body|>",
    "<|load_inline_core|>",
    "<|module|>",
    "<|reference|>",
    "<|prefix|>",
    "<|suffix|>",
    "<|core|>",
)
"""The special tokens of the ``fim`` format, in the order of their ids from 0."""

_REPLY_ENDS = ("<|im_end|>", "<|endoftext|>")


class DiceTokenizer:
    """Byte-level BPE from ``tokenizer.json``. Text never becomes a special token, whatever it spells."""

    def __init__(self, tokenizer: Tokenizer, stop_ids: Sequence[int] = ()) -> None:
        # A user's source may hold the spelling "<|core|>": encoding it as the special token would corrupt the prompt.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        ends = [i for i in map(tokenizer.token_to_id, _REPLY_ENDS) if i is not None]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys([*ends, *stop_ids]))
        """Ids that end a reply: those of the config and every end token that the vocabulary has."""

    @staticmethod
    def load(folder: str | Path, config: SdarConfig | None = None) -> DiceTokenizer:
        """Read ``tokenizer.json`` of a checkpoint folder; ``config`` adds its stop ids."""
        path = Path(folder) / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{folder}: no tokenizer.json there")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"{path}: not a readable tokenizer: {error}") from None
        return DiceTokenizer(tokenizer, config.eos_token_ids if config else ())

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of ``text`` as plain text; ``decode`` gives it back exactly."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ``ids`` without special tokens. Bytes that are no UTF-8 come out as U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def special(self, token: str) -> int:
        """The id of a special token; raises :class:`CheckpointError` where the vocabulary lacks it."""
        number = self._tokenizer.token_to_id(token)
        if number is None:
            raise CheckpointError(
                f"the tokenizer has no token {token}: does it belong to this checkpoint's format?"
            )
        return number
