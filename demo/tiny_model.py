"""Make a tiny random model whose tokenizer gives one token per UTF-8 byte: `python tiny_model.py DIR`.

Run by the Python of the vLLM environment. The text that it writes is noise; its caching is real. A token's id
is the byte that it stands for; each special is one token. So a prompt's length can be counted without it, but
for text that is not in Unicode's normal form C: transformers puts a normalizer before any Qwen2 tokenizer.
"""

import sys
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]
from tokenizers import (  # type: ignore[import-not-found, unused-ignore]
    AddedToken,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)
from transformers import (  # type: ignore[import-not-found, unused-ignore]
    AutoTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 256, 257, 258
MAX_TOKENS = 8192
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_symbols() -> dict[str, int]:
    """Return byte-level BPE's 256 symbols, each numbered by the byte that it stands for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return the byte tokenizer: no merges, no normalizer, nothing added around a text."""
    tokenizer = Tokenizer(models.BPE(vocab=byte_symbols(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|endoftext|>",  # noqa: S106 - a token of text, not a secret
        eos_token="<|im_end|>",  # noqa: S106
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_TOKENS,
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Return the model: the same weights every time, and no id that the tokenizer lacks."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,  # of size 64: vLLM's CPU kernel refuses 16
        num_key_value_heads=2,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config).to(torch.bfloat16)


def main(folder: Path) -> None:
    """Write the model and its tokenizer into `folder`, and make sure that a text is its bytes there."""
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    make_model(tokenizer).save_pretrained(folder)
    text = " \u00e9\ufb01\n\n\t好\U0001f600 "  # what another normalizer or a trimmed space would change
    if AutoTokenizer.from_pretrained(folder)(text)["input_ids"] != list(text.encode()):
        sys.exit("this version of transformers does not load the byte tokenizer as it was saved")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
