"""Serve a GGUF file with xllamacpp on loopback, on one thread: `python serve.py FILE PORT`."""

from __future__ import annotations

import importlib
import sys
import threading

CONTEXT = 16_384
LONGEST = 700
"""Tokens of one answer. Small models repeat themselves: without this, for an hour."""


def main(path: str, port: str) -> None:
    llama = importlib.import_module("xllamacpp")  # of another environment: no dependency of ours
    settings = llama.CommonParams()
    settings.model.path = path
    settings.model_alias = {"local"}
    settings.hostnames = ["127.0.0.1"]
    settings.port = int(port)
    settings.n_ctx = CONTEXT
    settings.n_predict = LONGEST
    settings.n_parallel = 1
    # More threads spin while others have the cores: ten times slower, and no use to anybody.
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.use_jinja = True
    settings.sampling.temp = 0.2
    settings.sampling.seed = 1
    server = llama.Server(settings)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Event().wait()
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
