"""Is there room for one more ticket, and who is tried next (Y13)?"""

from giveway_admission.ticket_index import HeldTickets, Ticket, TicketIndex, TicketStatistics
from giveway_admission.tickets import OVERHEAD_BYTES, TicketAnswer, TicketStatus


def index(*, count: int = 10, size: int = 100_000, retention_s: float = 60.0) -> TicketIndex:
    return TicketIndex(maximum_count=count, maximum_bytes=size, retention_s=retention_s)


def ticket(identity: str, *, created_s: float = 0.0, key: bytes | None = None) -> Ticket:
    return Ticket(
        id=identity,
        tenant="t",
        created_s=created_s,
        expires_s=100.0,
        key_digest=key,
        fingerprint=b"",
        size_bytes=OVERHEAD_BYTES,
    )


def answer(size: int = 0) -> TicketAnswer:
    return TicketAnswer(status=200, reason=b"OK", lines=b"", body=b"x" * size)


def test_tickets_are_bounded_by_number() -> None:
    """Finished ones count until they are gone."""
    tickets = index(count=2)
    first, second = ticket("a"), ticket("b")
    tickets.add(first)
    tickets.add(second)
    assert not tickets.has_room(0)
    tickets.finish(first, TicketStatus.COMPLETED, answer=answer(), now_s=1.0)
    assert not tickets.has_room(0)
    tickets.remove(first)
    tickets.remove(first)
    assert tickets.has_room(0)


def test_tickets_are_bounded_by_bytes_of_bodies_and_answers() -> None:
    """3 KiB: two tickets of 1 KiB overhead leave room for a third with an empty body."""
    tickets = index(size=3 * OVERHEAD_BYTES)
    one, other = ticket("a"), ticket("b")
    tickets.add(one)
    tickets.add(other)
    assert tickets.has_room(0)
    assert not tickets.has_room(1)
    tickets.finish(one, TicketStatus.COMPLETED, answer=answer(10), now_s=1.0)
    assert not tickets.has_room(0)
    tickets.remove(one)
    assert tickets.has_room(OVERHEAD_BYTES)
    assert tickets.statistics(held=0).bytes == OVERHEAD_BYTES


def test_answers_are_kept_for_their_time_and_no_longer() -> None:
    """Kept 60 s from their end: those of 1 and 2 are due at 62, that of 3 is not."""
    tickets = index(retention_s=60.0)
    for number in range(1, 4):
        each = ticket(str(number))
        tickets.add(each)
        tickets.finish(each, TicketStatus.FAILED, answer=answer(), now_s=float(number))
    assert tickets.next_end_s() == 61.0
    due = tickets.kept_long_enough(now_s=62.0, most=10)
    assert [each.id for each in due] == ["1", "2"]
    assert [each.id for each in tickets.kept_long_enough(now_s=99.0, most=1)] == ["1"]
    for each in due:
        tickets.remove(each)
    assert tickets.next_end_s() == 63.0


def test_a_key_leads_to_its_ticket_until_that_is_gone() -> None:
    """And another tenant does not find it by its id."""
    tickets = index()
    one = ticket("a", key=b"k")
    tickets.add(one)
    assert tickets.find_by_key(b"k") is one
    assert tickets.find("a", tenant="t") is one
    assert tickets.find("a", tenant="other") is None
    tickets.remove(one)
    assert tickets.find_by_key(b"k") is None


def test_statistics_tell_what_is_there() -> None:
    """Open and finished, held and running."""
    tickets = index()
    one, other = ticket("a"), ticket("b")
    tickets.add(one)
    tickets.add(other)
    tickets.finish(other, TicketStatus.COMPLETED, answer=answer(), now_s=1.0)
    assert tickets.statistics(held=1) == TicketStatistics(
        open=1, running=0, held=1, finished=1, bytes=2 * OVERHEAD_BYTES
    )


def test_held_tickets_are_tried_oldest_first_and_group_by_group() -> None:
    """A class that is full does not hold up another; a group is tried once when it is due."""
    held = HeldTickets()
    batch, other = ("batch", "t"), ("standard", "t")
    for created_s in (3.0, 1.0, 2.0):
        held.hold(batch, ticket(str(created_s), created_s=created_s), due_s=10.0)
    held.hold(other, ticket("o"), due_s=5.0)
    assert (len(held), held.next_due_s()) == (4, 5.0)
    assert held.take_due(now_s=5.0) == [other]
    assert held.next_due_s() == 10.0
    taken = held.take(other)
    assert taken is not None
    assert taken.id == "o"
    assert held.take(other) is None
    assert held.take_due(now_s=10.0) == [batch]
    assert held.take_due(now_s=10.0) == []
    first = held.take(batch)
    assert first is not None
    assert first.id == "1.0"
    held.hold(batch, first, due_s=20.0)
    assert held.next_due_s() == 20.0
    held.discard(first)
    again = held.take(batch)
    assert again is not None
    assert again.id == "2.0"
    held.clear()
    assert (len(held), held.next_due_s()) == (0, None)
