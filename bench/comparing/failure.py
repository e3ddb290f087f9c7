"""How bench/compare ends when it cannot go on, or must not succeed."""


class Failure(Exception):
    """Its text is the one line that the user sees."""


def fail_if_worse(figures, limit):
    if figures:
        raise Failure(f"worse by more than {limit:.1%}: {', '.join(figures)}")
