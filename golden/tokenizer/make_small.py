#!/usr/bin/env python3
"""Trains the small vocabulary in small/: Qwen3.5's pattern and special tokens with 2,048 ids in all.

    make_small.py

It is trained on the repository's licence text and on lines like those of lines.py (another seed). No token is
longer than 8 bytes, so that most words are several tokens. The same version of `tokenizers` gives the same bytes.
check_ids.py --write must follow.
"""

import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from layout import BYTE_CHARACTERS, SPLIT_PATTERN, tokenizer_config, tokenizer_json
from lines import lines
from make_tokenizer_json import SPECIAL_TOKENS

HERE = Path(__file__).parent
SIZE = 2048


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    start = SIZE - len(SPECIAL_TOKENS)
    trainer = trainers.BpeTrainer(
        vocab_size=start,
        initial_alphabet=BYTE_CHARACTERS,
        max_token_length=8,
        show_progress=False,
        special_tokens=[],
    )
    corpus = (HERE / "../../LICENSE").read_text(encoding="utf-8").splitlines()
    corpus += lines(seed=3)
    tokenizer.train_from_iterator(corpus, trainer)

    model = json.loads(tokenizer.to_str())["model"]
    byte_of = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}

    def as_bytes(token: str) -> bytes:
        return bytes(byte_of[character] for character in token)

    tokens = [as_bytes(token) for token, _ in sorted(model["vocab"].items(), key=lambda entry: entry[1])]
    merges = [(as_bytes(a), as_bytes(b)) for a, b in model["merges"]]
    added = [(start + i, content, special) for i, (content, special) in enumerate(SPECIAL_TOKENS)]
    small = HERE / "small"
    small.mkdir(exist_ok=True)
    (small / "tokenizer.json").write_text(tokenizer_json(tokens, merges, added, indent=None), encoding="utf-8")
    (small / "tokenizer_config.json").write_text(tokenizer_config(added), encoding="utf-8")
    print(f"{small}: {len(tokens)} tokens, {len(merges)} merges, {len(added)} special tokens from {start}")


if __name__ == "__main__":
    main()
