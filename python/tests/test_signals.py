"""Signals of a host that has loaded libnccl-net-mcast.so: who handles them, how faults and interrupts end."""

from __future__ import annotations

import signal

import pytest

from .host import host, pair

FAULTS = {"SIGSEGV", "SIGBUS", "SIGFPE"}


def test_dispositions_of_a_python_host() -> None:
    # The changed ones: faults in Go code become errors, and all others go on to the handler of before. Go
    # preempts its own threads by SIGURG, which had no handler.
    changed = host("""
        before, stack = dispositions(), altstack()
        caught, ignored, blocked = (status(f) for f in ("SigCgt", "SigIgn", "SigBlk"))
        library = ctypes.CDLL(os.environ["MCAST_LIBRARY"])
        early = dispositions()
        assert altstack() == stack
        load()
        assert dispositions() == early, "the first call changed a disposition"
        print(*(name(s) for s in before if before[s] != early[s]))
        assert all(before[s] == (0, 0) and early[s][1] & SA_ONSTACK for s in before if before[s] != early[s])
        own = sum(1 << s - 1 for s in before if before[s] != early[s])
        glibc = 3 << 31  # 32 and 33, which glibc takes when the first thread starts
        assert status("SigCgt") | glibc == caught | own | glibc
        assert (status("SigIgn"), status("SigBlk")) == (ignored, blocked)
        assert ignored >> signal.SIGPIPE - 1 & 1
    """).stdout.split()
    assert set(changed) == FAULTS | {"SIGURG"}


def test_dispositions_of_a_host_that_has_set_them_all() -> None:
    changed = host("""
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if name(number) not in ("SIGPIPE", "32", "33"):
                signal.signal(number, lambda *_: None)
        before = dispositions()
        load()
        after = dispositions()
        print(*(name(s) for s in before if before[s] != after[s]))
    """).stdout.split()
    assert set(changed) == FAULTS


def test_dispositions_of_a_host_that_ignores_them_all() -> None:
    changed = host("""
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        before = dispositions()
        load()
        after = dispositions()
        print(*(name(s) for s in before if before[s] != after[s]))
    """).stdout.split()
    assert set(changed) == FAULTS


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGINT, signal.SIGALRM]
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_host_is_called(number: signal.Signals, when: str) -> None:
    host(f"""
        got = []
        def install():
            signal.signal({int(number)}, lambda n, _: got.append(n))
        if {when == "before"}:
            install()
        load()
        if {when == "after"}:
            install()
        for turn in range(1, 21):
            os.kill(os.getpid(), {int(number)})
            until(lambda: len(got) == turn, "the handler is called")
            assert got == [{int(number)}] * turn
    """)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE]
)
def test_a_signal_without_a_handler_ends_the_host(number: signal.Signals) -> None:
    host(
        f"""
        load()
        os.kill(os.getpid(), {int(number)})
        time.sleep(LIMIT_S)
        """,
        status=-number,
    )


@pytest.mark.parametrize("thread", ["main", "other"])
@pytest.mark.parametrize("enabled", ["before", "after", "never"])
def test_faulthandler_reports_a_fault(enabled: str, thread: str) -> None:
    done = host(
        f"""
        import faulthandler
        if {enabled == "before"}:
            faulthandler.enable()
        load()
        if {enabled == "after"}:
            faulthandler.enable()
        def the_culprit():
            load()
            ctypes.string_at(8)
        if {thread == "main"}:
            the_culprit()
        culprit = threading.Thread(target=the_culprit)
        culprit.start()
        culprit.join()
        """,
        status=-signal.SIGSEGV,
    )
    assert ("Fatal Python error: Segmentation fault" in done.stderr) == (enabled != "never")
    assert ("in the_culprit" in done.stderr) == (enabled != "never")


def test_the_alternate_stack_of_a_thread_is_kept() -> None:
    # faulthandler's, by which it reports an overflow of the stack.
    host("""
        import faulthandler
        faulthandler.enable()
        before = altstack()
        assert before[0]
        load()
        assert altstack() == before
    """)


def test_a_broken_pipe_is_an_error_as_before() -> None:
    host("""
        load()
        read, write = os.pipe()
        os.close(read)
        try:
            os.write(write, b"x")
        except BrokenPipeError:
            print("broken")
        # An ignored signal is handed on by exec; a handled one would become the default.
        show = ["grep", "SigIgn", "/proc/self/status"]
        out = subprocess.run(show, restore_signals=False, capture_output=True, text=True, check=True).stdout
        assert int(out.split()[1], 16) >> signal.SIGPIPE - 1 & 1
        out = subprocess.run(show, capture_output=True, text=True, check=True).stdout
        assert not int(out.split()[1], 16) >> signal.SIGPIPE - 1 & 1
    """)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_host_that_dies_of_a_broken_pipe_still_does(when: str) -> None:
    host(
        f"""
        if {when == "before"}:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        load()
        if {when == "after"}:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        read, write = os.pipe()
        os.close(read)
        os.write(write, b"x")
        """,
        status=-signal.SIGPIPE,
    )


def test_keyboard_interrupt_before_during_and_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    out = pair(
        """
        if RANK == 1:
            sys.stdin.readline()  # until rank 0 has been interrupted
            dist.barrier()
            dist.destroy_process_group()
            sys.exit()

        # Interrupts its parent once the main thread of that sleeps, as it does in a wait.
        INTERRUPT = '''
            read -r line
            until read -r pid name state rest </proc/$PPID/stat && [ "$state" = S ]; do :; done
            kill -INT $PPID
        '''

        def interrupted(call):
            sender = subprocess.Popen(["sh", "-c", INTERRUPT], stdin=subprocess.PIPE)
            try:
                sender.stdin.write(b"go\\n")
                sender.stdin.flush()
                call()
                time.sleep(LIMIT_S)
            except KeyboardInterrupt:
                return True
            finally:
                sender.wait()

        print("before", interrupted(lambda: time.sleep(LIMIT_S)))
        work = dist.barrier(async_op=True)
        print("during", interrupted(work.wait))
        assert not work.is_completed()
        peer.stdin.write(b"go\\n")
        peer.stdin.flush()
        work.wait()
        print("after", interrupted(lambda: time.sleep(LIMIT_S)))
        dist.destroy_process_group()
        print("peer", peer.wait(LIMIT_S))
        """,
        monkeypatch,
    ).stdout
    assert out.split() == ["before", "True", "during", "True", "after", "True", "peer", "0"]
