"""Pages that a server numbers, as the original Delta-MCP does: which one is next, and whether a page repeats another.

Pure: does no I/O.
"""

from deltamcp.client.reply import Reply
from deltamcp.values import JSON


def page_number(reply: Reply) -> int:
    """Returns the number of a page: the one that the reply states, else the one that its call requested."""
    for number in (reply.shape.get("page"), requested_page(reply)):
        if isinstance(number, int):
            return number
    return 1


def requested_page(reply: Reply) -> JSON:
    """Returns the page that a call requested; None if it requested none."""
    return None if reply.call is None else reply.call.arguments.get("page")


def rows_before(reply: Reply) -> int:
    """Returns the number of rows on the pages before a page; 0 for any other reply."""
    if not reply.is_page:
        return 0
    size = reply.shape.get("pageSize")
    return (page_number(reply) - 1) * (size if isinstance(size, int) else len(reply.shape["items"]))


def has_next(reply: Reply) -> bool:
    """Whether a reply is a page after which there is another."""
    return reply.is_page and reply.shape.get("hasMore") is True


def repeats(page: Reply, previous: Reply) -> bool:
    """Whether a page is not the page after the previous one, but that page again.

    Two pages of equal rows may have the same items; their numbers then show that they are two pages.
    """
    if not page.is_page:
        return False
    number, total = page.shape.get("page"), page.shape.get("totalPages")
    if isinstance(number, int) and number != page_number(previous) + 1:
        return True
    is_numbered = isinstance(number, int) and isinstance(total, int) and number <= total
    is_same_list = is_numbered and total == previous.shape.get("totalPages")
    return not is_same_list and page.shape["items"] == previous.shape["items"]
