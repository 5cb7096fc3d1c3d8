"""Which kind of answer belongs to a request?"""

from giveway_simulation.emulator_answering import GeneratedAnswer
from giveway_simulation.emulator_embedding_answers import EmbeddingsAnswer
from giveway_simulation.emulator_http import Exchange
from giveway_simulation.emulator_message_answers import MessagesAnswer
from giveway_simulation.emulator_openai_answers import ChatAnswer, CompletionAnswer
from giveway_simulation.emulator_requests import Api, Asked
from giveway_simulation.emulator_response_answers import ResponsesAnswer


def make_answer(asked: Asked, exchange: Exchange, *, name: str) -> GeneratedAnswer:
    """`name` is the id without its prefix."""
    match asked.api:
        case Api.CHAT:
            return ChatAnswer(asked, exchange, name=name)
        case Api.COMPLETIONS:
            return CompletionAnswer(asked, exchange, name=name)
        case Api.RESPONSES:
            return ResponsesAnswer(asked, exchange, name=name)
        case Api.MESSAGES:
            return MessagesAnswer(asked, exchange, name=name)
        case Api.EMBEDDINGS:
            return EmbeddingsAnswer(asked, exchange, name=name)
