"""Numbers of things, for people to read."""


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, such as `1 node` and `2,000 nodes`.

    Args:
        number: how many.
        noun: of one; its plural ends in s.

    Returns:
        Both as text.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
