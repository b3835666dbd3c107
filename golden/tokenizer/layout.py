"""The layout of a Hugging Face tokenizer folder for a byte-level BPE with Qwen3.5's split pattern."""

import json

# Letters run together with their marks; punctuation excludes marks. (Qwen2's pattern has no `\p{M}`.)
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_characters() -> list[str]:
    """GPT-2's printable stand-in for every byte: itself where Latin-1 prints it, else from U+0100 upwards."""
    itself = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in itself else next(spare)) for byte in range(256)]


BYTE_CHARACTERS = byte_characters()


def characters(token: bytes) -> str:
    """`token` as tokenizer.json spells it."""
    return "".join(BYTE_CHARACTERS[byte] for byte in token)


def tokenizer_json(
    tokens: list[bytes],
    merges: list[tuple[bytes, bytes]],
    added: list[tuple[int, str, bool]],
    indent: int | None = 2,
) -> str:
    """tokenizer.json: `tokens` in id order, `merges` in rank order, `added` as (id, content, special)."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": content,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": special,
            }
            for i, content, special in added
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": SPLIT_PATTERN},
                    "behavior": "Isolated",
                    "invert": False,
                },
                byte_level,
            ],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {characters(token): i for i, token in enumerate(tokens)},
            "merges": [[characters(a), characters(b)] for a, b in merges],
        },
    }
    separators = (",", ":") if indent is None else None
    return json.dumps(document, ensure_ascii=False, indent=indent, separators=separators) + "\n"


def tokenizer_config(added: list[tuple[int, str, bool]]) -> str:
    """tokenizer_config.json: the end-of-text tokens; the chat template is a file of its own or the default."""
    document = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(i): {
                "content": content,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": special,
            }
            for i, content, special in added
        },
        "bos_token": None,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 262144,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen3_5Tokenizer",
        "unk_token": None,
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
