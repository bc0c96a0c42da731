"""Runs a converter's jobs, a line of JSON each, one after another."""
import importlib
import json
import sys
import traceback

sys.path.insert(0, sys.argv[1])
from tell import Teller

convert, tell = importlib.import_module(sys.argv[2]).convert, Teller()
for line in sys.stdin:
    try:
        tell.done(convert(json.loads(line), tell))
    except Exception as error:
        traceback.print_exc()
        tell.wrong(error)
