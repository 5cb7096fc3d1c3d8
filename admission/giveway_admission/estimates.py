"""What is a prompt taken for before the engine has counted it?"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What is assumed of a prompt. Guesses unless said otherwise; usage corrects each of them."""

    bytes_per_token: int = 4
    """English in the tokenizers of current models has 4 to 4.5 bytes a token; Chinese about 2.5,
    code about 3.3. The class's usage statistics would replace it."""
    image_tokens: int = 1024
    """A megapixel picture: 576 (LLaVA) to about 1,300 (Qwen-VL)."""
    audio_tokens: int = 1024
    """Some 40 seconds at 25 tokens a second."""
    video_tokens: int = 8192
    file_tokens: int = 4096
    """A document of about six pages."""
    media_bytes: int = 2**20
    """Of a body that is too long to be read at once: what one picture or sound is assumed to be."""
    audio_bytes_per_token: int = 640
    """Uploaded sound: 16 kB a second (128 kbit MP3) and 25 tokens a second."""
    largest_upload_tokens: int = 32768
    largest_unread_tokens: int = 131072
    """What the unread rest of a long body counts at most: a long context window. The engine refuses
    what is longer, so nothing longer is ever worked on."""


DEFAULT_ESTIMATES = Estimates()


def tokens_of_bytes(text_bytes: int, estimates: Estimates) -> int:
    """Tokens of so many bytes of text, rounded up."""
    return -(-text_bytes // estimates.bytes_per_token)
