"""Serve the built site to this machine: `python tools/serve.py [PORT]`, or `make serve`."""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SITE = Path(__file__).resolve().parents[1] / "_build" / "html"


def main(text="8000"):
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        sys.exit(f"PORT={text} must be a whole number from 1 to 65535")
    try:
        server = ThreadingHTTPServer(("127.0.0.1", int(text)), partial(SimpleHTTPRequestHandler, directory=SITE))
    except OSError as error:
        sys.exit(f"PORT={text} cannot be served: {error.strerror}; another: make serve PORT={int(text) % 65535 + 1}")
    print(f"http://127.0.0.1:{text}  (Ctrl-C ends it)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main(*sys.argv[1:])
