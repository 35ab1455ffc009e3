"""``jaxrank report --watch``: a report served to this machine alone, made again when its files change."""

import http.server
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxrank.output.page import Content, html_of

_LOOPBACK = "127.0.0.1"
_RESULTS = ("*.nc", "manifest.json")


def state_of(folders: Sequence[Path]) -> str:
    """A text that is another whenever a result has been written, removed or replaced."""
    files = sorted({file for folder in folders for kind in _RESULTS for file in folder.glob(kind)})
    known = []
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:  # replaced at this moment: the next look sees it
            continue
        known.append(f"{file.name} {status.st_mtime_ns} {status.st_size}")
    return f"{hash(tuple(known)):x}"


def make_server(folders: Sequence[Path], content: Callable[[], Content], port: int) -> http.server.HTTPServer:
    """A server on loopback with two pages: the report, and the state of its files, which the report asks for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = f"{_LOOPBACK}:{server.server_port}"
            if self.headers.get("Host") not in (own, own.replace(_LOOPBACK, "localhost")):
                self.send_error(403, "only by the name of this machine")  # another site's name that leads here
            elif self.path == "/state":
                self.answer(state_of(folders), "text/plain")
            elif self.path == "/":
                state = state_of(folders)
                try:
                    shown = content()
                except ValueError as error:
                    shown = Content("waiting for results", str(error), {})
                self.answer(html_of(shown, state), "text/html")
            else:
                self.send_error(404)

        def answer(self, text: str, kind: str) -> None:
            body = text.encode()
            self.send_response(200)
            for name, value in (("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body))),
                                ("Cache-Control", "no-store")):  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the terminal is the user's."""

    try:
        server = http.server.ThreadingHTTPServer((_LOOPBACK, port), Handler)
    except OSError as error:
        raise ValueError(f"--port must be free; cannot use {port}: {error.strerror}") from None
    return server
