"""Which model can a test serve that needs no download and answers the same every time?

A Llama with random weights from a seed. One token is one character of ASCII text, so that a
prompt's length is known and each event of a stream shows text. Runs in the engine's environment:

    python make_model.py FOLDER WIDTH LAYERS
"""

import sys

import torch  # type: ignore[import-not-found]
from tokenizers import (  # type: ignore[import-not-found]
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
)
from transformers import (  # type: ignore[import-not-found]
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

_SPECIALS = ["<unknown>", "<end>", "<turn>"]
_CHARACTERS = ["\n", *(chr(code) for code in range(32, 127))]
_TEMPLATE = (
    "{% for message in messages %}<turn>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}{{ part.text }}{% endfor %}{% endif %}\n"
    "{% endfor %}<turn>assistant\n"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each character; what is not ASCII is unknown."""
    vocabulary = {token: index for index, token in enumerate([*_SPECIALS, *_CHARACTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    inner.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unknown>",
        eos_token="<end>",
        additional_special_tokens=["<turn>"],
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def make_model(width: int, layers: int) -> LlamaForCausalLM:
    """Random weights; the outputs are spread so that the likeliest token is a clear one."""
    torch.manual_seed(20)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(_SPECIALS) + len(_CHARACTERS),
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // 32,
            num_key_value_heads=max(1, width // 128),
            max_position_embeddings=8192,
            eos_token_id=1,
            bos_token_id=None,
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        model.lm_head.weight *= 20
        model.lm_head.weight[: len(_SPECIALS)] = 0
    return model.to(torch.bfloat16)


def main() -> None:
    """Write model and tokenizer into the folder."""
    folder, width, layers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    make_tokenizer().save_pretrained(folder)
    make_model(width, layers).save_pretrained(folder)


if __name__ == "__main__":
    main()
