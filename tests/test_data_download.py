"""Downloads from a server on this machine: only a right file is put in place, whatever the server does."""

import hashlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vcsg.workloads import DataError, DataSet, Source, data_sets, datasets, fetch, load_data_set, where
from vcsg.workloads import download as module
from vcsg.workloads.download import Download, download, matches

pytest.importorskip("pooch", reason="pooch is not installed: nothing can be downloaded")
CONTENT = bytes(range(256)) * 1000
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


class Server(ThreadingHTTPServer):
    """Serves CONTENT as good, a part of it as short, something else as wrong; counts what it is asked for."""

    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
            return
        if self.path not in ("/good", "/short", "/wrong"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        body = {"/good": CONTENT, "/short": CONTENT[:9999], "/wrong": bytes(len(CONTENT))}[self.path]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VCSG_DATA", raising=False)
    server = Server(("127.0.0.1", 0), Handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def file(server: Server, name: str, *digests: str) -> Download:
    return Download(f"http://127.0.0.1:{server.server_port}/{name}", len(CONTENT), digests or (SHA256,))


def left(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["good", "moved"])
@pytest.mark.parametrize("digests", [(SHA256,), (MD5,), ("sha256:0", SHA256), ("sha256:0", MD5)])
def test_a_good_file(server: Server, tmp_path: Path, name: str, digests: tuple[str, ...]) -> None:
    folder = tmp_path / "deep" / "folder"
    path = download(file(server, name, *digests), folder)
    assert path == folder / name
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == [name]
    count = len(server.asked)
    assert download(file(server, name, *digests), folder) == path
    assert len(server.asked) == count


def test_a_wrong_file_in_its_place_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"of an older day")
    assert download(file(server, "good"), tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong", "gave 256,000 bytes whose checksum is not sha256:.*: not kept"),
        ("short", r"/short could not be downloaded \(.*9999 bytes read"),
        ("nothing", r"/nothing could not be downloaded \(404"),
    ],
)
def test_a_bad_download_leaves_what_was_there(server: Server, tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        download(file(server, name), tmp_path)
    assert left(tmp_path) == []
    (tmp_path / name).write_bytes(b"of an older day")
    with pytest.raises(DataError, match=message):
        download(file(server, name), tmp_path)
    assert left(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"of an older day"


def test_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(DataError, match=f"could not be downloaded .* put the file from elsewhere into {tmp_path}"):
        download(Download("http://127.0.0.1:9/good", 1, (SHA256,)), tmp_path)
    assert left(tmp_path) == []


def test_an_interrupted_download_leaves_nothing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: object, count: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.DownloadBar, "update", interrupt)
        with pytest.raises(KeyboardInterrupt):
            download(file(server, "good"), tmp_path, progress=True)
    assert left(tmp_path) == []
    assert download(file(server, "good"), tmp_path).read_bytes() == CONTENT


def test_a_folder_that_cannot_be_made(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=r"could not be downloaded .*Not a directory|.*File exists"):
        download(file(server, "good"), tmp_path / "file" / "folder")


def test_without_pooch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match="pip install pooch, or put https://x/y into"):
        download(Download("https://x/y", 1, (SHA256,)), tmp_path)


def test_progress_is_shown_where_it_is_asked_for(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download(file(server, "good"), tmp_path / "a")
    assert capsys.readouterr().err == ""
    download(file(server, "good"), tmp_path / "b", progress=True)
    shown = capsys.readouterr().err
    assert shown.startswith("\rgood: ")
    assert shown.endswith("good: 100 % of 0.3 MB\n")


@pytest.fixture
def toy(server: Server, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A set of one file; its samples are that file's first bytes."""
    import torch

    def read(files: list[Path], device: object) -> DataSet:
        x = torch.tensor(list(files[0].read_bytes()[:4])).view(4, 1)
        return DataSet("toy", (x, x[:, 0] % 2), (x, x[:, 0] % 2), 2)

    def find(folder: Path) -> list[Path]:
        return [folder / "good"] if (folder / "good").is_file() else []

    source = Source("toy", 4, (1,), 2, read, find, folder="toys", downloads=(file(server, "good"),))
    monkeypatch.setattr(datasets, "_SOURCES", {**data_sets(), "toy": source})
    return source


def test_fetch_downloads_once(toy: Source, server: Server, tmp_path: Path) -> None:
    assert where("toy") is None
    expected = [tmp_path / "cache" / "data" / "toys" / "good"]
    assert fetch("toy") == expected
    assert fetch("toy") == where("toy") == expected
    assert server.asked == ["/good"]
    assert load_data_set("toy").train[0].tolist() == [[0], [1], [2], [3]]


def test_load_downloads_what_is_not_there(toy: Source, server: Server) -> None:
    assert load_data_set("toy").classes == 2
    assert server.asked == ["/good"]


def test_fetch_into_a_folder(toy: Source, server: Server, tmp_path: Path) -> None:
    assert fetch("toy", tmp_path / "mine") == [tmp_path / "mine" / "toys" / "good"]
    assert len(load_data_set("toy", data_dir=tmp_path / "mine").train[0]) == 4
    assert left(tmp_path / "cache") == []


def test_a_folder_that_was_given_is_not_filled_by_loading(toy: Source, server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"toy are not in {tmp_path}.*fetch\('toy', data_dir='{tmp_path}'\)"):
        load_data_set("toy", data_dir=tmp_path)
    assert server.asked == []


def test_the_registered_files() -> None:
    """Every download has checksums of a known kind, a size, and a name that the set's own search finds."""
    for source in data_sets().values():
        for official in source.downloads:
            assert official.size > 1000
            assert official.digests
            for digest in official.digests:
                kind, value = digest.split(":")
                assert len(value) == {"sha256": 64, "md5": 32}[kind]


@pytest.mark.parametrize("name", [name for name, source in data_sets().items() if source.downloads])
def test_a_set_is_found_by_the_names_of_its_downloads(tmp_path: Path, name: str) -> None:
    source = data_sets()[name]
    for official in source.downloads:
        (tmp_path / official.name).write_bytes(b"")
    assert source.where([tmp_path]) == [tmp_path / official.name for official in source.downloads]


def test_digests_are_those_of_the_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    assert matches(path, Download("", 0, (SHA256,)))
    assert not matches(path, Download("", 0, (SHA256[:-1] + "x", MD5[:-1])))
