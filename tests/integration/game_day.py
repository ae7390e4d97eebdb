"""What a scenario of `ninja game-days` reports: a line that tests/integration/game_days.py makes a table of."""

MARK = "game day:"


def report(scenario, outage_s, errors, seen=""):
    """Seconds that a client's longest call took, errors that clients saw, and which."""
    print(f"{MARK} {scenario} | {outage_s:.1f} | {errors} | {seen}", flush=True)
