"""What do answers of /v1/embeddings look like?"""

import base64
import struct

from giveway_simulation.emulator_answering import GeneratedAnswer

EMBEDDING_DIMENSIONS = 64


class EmbeddingsAnswer(GeneratedAnswer):
    prefix = "embd-"

    def _whole(self) -> dict[str, object]:
        tokens = self._asked.prompt_tokens
        return {
            "id": self._id,
            "object": "list",
            "created": self._created,
            "model": self._asked.model,
            "data": [
                {"index": index, "object": "embedding", "embedding": self._embedding(index)}
                for index in range(len(self._asked.prompts))
            ],
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
        }

    def _embedding(self, index: int) -> list[float] | str:
        """A vector of length 1 that the seed decides."""
        raw = [
            (self._asked.seed * 31 + index * 17 + at * at * 7) % 97 - 48.0
            for at in range(EMBEDDING_DIMENSIONS)
        ]
        length = sum(value * value for value in raw) ** 0.5 or 1.0
        vector = [value / length for value in raw]
        if self._asked.base64:
            return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        return vector
