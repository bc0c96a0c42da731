"""What scripts share: the job, and the lines that tell of it."""
import json
import os
import resource
import sys

# The script may have so much private memory, in bytes; an allocation beyond it fails.
if os.environ.get("FAAS_INFER_SCRIPT_MEMORY"):
    bound = int(os.environ["FAAS_INFER_SCRIPT_MEMORY"])
    resource.setrlimit(resource.RLIMIT_DATA, (bound, bound))


class Wrong(Exception):
    """An error in a sentence for people, with the operators that cannot be converted, if
    it is for them."""

    def __init__(self, text, operators=()):
        super().__init__(text)
        self.operators = list(operators)


class Teller:
    """Events for the Go program, a line of JSON each."""

    def __init__(self):
        # Libraries print to standard output, too: that is the log's.
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def step(self, text):
        print(json.dumps({"step": text}), file=self.out)

    def done(self, result):
        print(json.dumps({"done": result}), file=self.out)

    def wrong(self, error):
        print(json.dumps({"error": explain(error), "operators": getattr(error, "operators", [])}), file=self.out)


def explain(error):
    """One line of an error."""
    text = str(error).strip()
    if isinstance(error, Wrong):
        return text
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:500]


def versions(*names):
    from importlib import metadata

    return {name: metadata.version(name) for name in names}


def main(work):
    """Reads the job, works, tells."""
    import traceback

    job, tell = json.load(sys.stdin), Teller()
    try:
        tell.done(work(job, tell))
    except BaseException as error:
        traceback.print_exc()
        tell.wrong(error)
        sys.exit(1)
