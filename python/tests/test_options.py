from datetime import timedelta

from torch_mcast import Options


def test_durations() -> None:
    options = Options(timeout=timedelta(seconds=1.5), join_timeout=5, loss="1%")
    assert options.lines() == "MCAST_TIMEOUT=1500000us\nMCAST_JOIN_TIMEOUT=5\nMCAST_LOSS=1%"
