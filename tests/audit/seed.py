"""The seed of a run: a given one, the clock's, or the day's, so that the suite has another one each day."""
import os
import time


def add_options(parser):
    today = int(os.environ.get("PLX_DAY") or time.time() // 86400)  # as tests/today.h
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, default=int(time.time()), help="by default from the clock")
    which.add_argument("--today", dest="seed", action="store_const", const=today,
                       help="the day's (UTC): days since 1970, or PLX_DAY")
