#!/usr/bin/env python3
"""Runs go test, and runs tests that failed again. See --help."""

import json
import os
import re
import signal
import subprocess
import sys

USAGE = """\
Usage: scripts/gotest.py [FLAG...] -- PACKAGE...

Runs `go test FLAG... PACKAGE...`; -C, which chooses the module, comes first. It prints a line
for each package that passes, unless the result is cached, and the whole output of each test that
fails. A test that fails runs again, alone, up to FAAS_INFER_RERUNS times (2 by default). The exit
status is 0 if each test passed in the end.

These failures are final at once: a package that does not build; a panic, a timeout or another
end before the last test; a data race; a panic or data race in the log of a program that an
end-to-end test started; more than 10 failed tests. A package that fails after all its tests
passed, as it does if a goroutine is left, runs again as a whole.

At the end it prints "flaky: PACKAGE TEST" for each test that failed first and passed later,
and "failed: PACKAGE TEST" for the others. If FAAS_INFER_FLAKY names a file, the flaky lines
are appended to it: make test prints the file at its end. If FAAS_INFER_FAILED names a file,
a line "PACKAGE TEST" for each first failure is appended to that.

Examples:
  scripts/gotest.py -C lab -- ./sim
  scripts/gotest.py -race -timeout 15m -- ./batching/... ./scaling/...
"""

MAX_RERUN = 10
MARKER = re.compile(r"=== (RUN|PAUSE|CONT|NAME) ")
RACE = "WARNING: DATA RACE\n"
# The end-to-end tests say so of a program's log.
DEFECT = re.compile(r"the log says (DATA RACE|panic:|fatal error:)")


class Package:
    """What go test -json has said about one package."""

    def __init__(self, name):
        self.name = name
        self.output = {}  # By test, "" for the package. Tests that passed have none.
        self.running = set()
        self.failed = []
        self.ran = set()
        self.finished = False  # All tests have ended, whatever their results.
        self.race = False
        self.built = True

    def add(self, event):
        """Takes an event. Returns True if it is the package's last one."""
        action, test = event["Action"], event.get("Test", "")
        if action == "output":
            text = event["Output"]
            self.finished |= not test and text in ("PASS\n", "FAIL\n")
            self.race |= text == RACE
            if not MARKER.match(text):
                self.output.setdefault(test, []).append(text)
        elif action == "run":
            self.running.add(test)
            self.ran.add(test)
        elif action in ("pass", "fail", "skip"):
            if not test:
                self.built = "FailedBuild" not in event
                return True
            self.running.discard(test)
            if action == "fail":
                self.failed.append(test)
            elif RACE not in self.output.get(test, ()):
                self.output.pop(test, None)
        return False

    def final(self):
        """Says why the package's failure is not a matter of chance, or "" if it may be."""
        if not self.built:
            return "it does not build"
        if self.race:
            return "a data race"
        if any(DEFECT.search(text) for lines in self.output.values() for text in lines):
            return "a program that it started raced or panicked"
        if not self.finished:
            return "it ended before its last test: a panic, a timeout or an exit"
        return ""

    def names(self):
        """Lists the innermost tests that failed; [""] stands for the package."""
        inner = [t for t in self.failed if not any(u.startswith(t + "/") for u in self.failed)]
        return inner or sorted(self.running) or [""]

    def text(self):
        """Returns the output of the tests that failed, then the package's own."""
        own = self.output.pop("", [])
        return "".join("".join(lines) for lines in self.output.values()) + "".join(own)


def run(flags, packages, quiet=False):
    """Runs go test. Returns its exit status, the failed packages, and by name those that passed."""
    command = ["go", "test", *flags, "-json", *packages]
    found, failed, passed = {}, [], {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        try:
            for line in process.stdout:
                try:
                    event = json.loads(line)
                except ValueError:
                    print(line, end="", flush=True)
                    continue
                if event["Action"] == "build-output":
                    print(event["Output"], end="", flush=True)
                if "Package" not in event:
                    continue
                package = found.setdefault(event["Package"], Package(event["Package"]))
                if not package.add(event):
                    continue
                del found[package.name]
                if event["Action"] == "fail":
                    failed.append(package)
                    print(package.text(), end="", flush=True)
                elif event["Action"] == "pass":
                    passed[package.name] = package
                    last = package.output.get("", ["\n"])[-1]
                    if not quiet and "(cached)" not in last:
                        print(last, end="", flush=True)
        except BaseException:
            process.terminate()
            raise
    return process.returncode, failed, passed


def again(flags, package, test, reruns):
    """Runs a test, or the package if it is "", until it passes. Reports whether it did."""
    only = ["-run", f"^{re.escape(test)}$"] if test else []
    for i in range(reruns):
        print(f"--- again, {i + 1} of {reruns}: {package} {test}".rstrip(), flush=True)
        status, failed, passed = run([*flags, "-count=1", *only], [package], quiet=True)
        if status == 0:
            # A name that matches nothing passes, too.
            return not test or test in passed[package].ran
        why = [p.final() for p in failed if p.final()]
        if why:
            print(f"final: {package} {test}: {why[0]}", flush=True)
            return False
    return False


def append(variable, lines):
    """Appends lines to the file that an environment variable names, if it is set."""
    if os.environ.get(variable) and lines:
        os.makedirs(os.path.dirname(os.environ[variable]) or ".", exist_ok=True)
        with open(os.environ[variable], "a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)


def row(package, test):
    """Names a test in the lists."""
    return f"{package} {test or '(the package)'}"


def main(arguments):
    """Runs the program. Returns its exit status."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if "--" not in arguments or arguments[-1] == "--":
        print(USAGE, end="", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    split = arguments.index("--")
    flags, packages = arguments[:split], arguments[split + 1 :]
    reruns = int(os.environ.get("FAAS_INFER_RERUNS") or 2)
    # With the race detector, each process would sleep for a second at its end, for goroutines that
    # race then. Tests start hundreds of processes, and goleak finds the goroutines.
    os.environ.setdefault("GORACE", "atexit_sleep_ms=0")

    status, failed, _ = run(flags, packages)
    append("FAAS_INFER_FAILED", [row(p.name, t) for p in failed for t in p.names()])
    rows, bad, candidates = [], [], []
    for package in failed:
        why = package.final()
        if why:
            print(f"final: {package.name}: {why}", flush=True)
            bad += [row(package.name, t) for t in package.names()]
            continue
        for test in dict.fromkeys(t.split("/")[0] for t in package.names()):
            names = [t for t in package.names() if t.split("/")[0] == test]
            candidates.append((package.name, test, [row(package.name, t) for t in names]))
    # If a failure is final or the failures are many, the others may have the same cause, and
    # the run has failed anyway.
    if bad or len(candidates) > MAX_RERUN:
        reruns = 0
    for package, test, names in candidates:
        if again(flags, package, test, reruns):
            rows += names
        else:
            bad += names

    lines = [f"flaky: {r}" for r in rows]
    append("FAAS_INFER_FLAKY", lines)
    print("".join(line + "\n" for line in lines + [f"failed: {r}" for r in bad]), end="", flush=True)
    if bad or (status and not failed):
        return status or 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
