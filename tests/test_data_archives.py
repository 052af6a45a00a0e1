"""Archives and folders: what they hold, and that a hostile one is refused and leaves nothing anywhere."""

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vcsg.workloads import DataError, archives, streams
from vcsg.workloads.archives import members

FILES = {"set/a.bin": b"first", "set/deep/b.bin": b"second", "set/c.txt": b"not wanted"}
WANTED = {name: raw for name, raw in FILES.items() if name.endswith(".bin")}


def read(path: Path, largest: int = 1000) -> dict[str, bytes]:
    return dict(members(path, lambda name: name.endswith(".bin"), largest))


def tar(path: Path, *extra: tarfile.TarInfo, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        folder = tarfile.TarInfo("set")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
        for name, raw in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
        for member in extra:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def zipped(path: Path, *extra: zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("set/")
        for name, raw in FILES.items():
            archive.writestr(name, raw)
        for entry in extra:
            archive.writestr(entry, b"evil")
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar(tmp_path: Path, mode: str) -> None:
    assert read(tar(tmp_path / "archive", mode=mode)) == WANTED


def test_zip(tmp_path: Path) -> None:
    assert read(zipped(tmp_path / "archive")) == WANTED


def test_folder(tmp_path: Path) -> None:
    for name, raw in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(raw)
    assert read(tmp_path) == WANTED
    with pytest.raises(DataError, match=r"b\.bin' in .* has 6 bytes, more than the 5"):
        read(tmp_path, largest=5)


def test_a_file_of_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.bin").mkdir()
    with pytest.raises(DataError, match=r"a\.bin cannot be read"):
        read(tmp_path, largest=1 << 20)


OUTSIDE = ["/tmp/evil.bin", "../evil.bin", "set/../../evil.bin", "..\\evil.bin", "C:\\evil.bin", "C:evil.bin"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    if kind == "tar":
        path = tar(folder / "archive", tarfile.TarInfo(name))
    else:
        path = zipped(folder / "archive", zipfile.ZipInfo(name))
    with pytest.raises(DataError, match=r"archive is refused, since its member .*evil\.bin' leads out of its folder"):
        read(path)
    assert [p.name for p in tmp_path.rglob("*")] == ["data", "archive"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("set/evil.bin")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(DataError, match=r"member 'set/evil\.bin' is a link or a device"):
        read(tar(tmp_path / "archive", member))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices_in_a_zip_are_refused(tmp_path: Path, kind: int) -> None:
    entry = zipfile.ZipInfo("set/evil.bin")
    entry.external_attr = (kind | 0o777) << 16
    with pytest.raises(DataError, match=r"member 'set/evil\.bin' is a link or a device"):
        read(zipped(tmp_path / "archive", entry))


def large(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    return member


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("name", ["evil.bin", "evil.txt"])
def test_a_tar_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, name: str) -> None:
    """A member that nobody asked for counts as well."""
    monkeypatch.setattr(streams, "UNPACKED_LIMIT", 1 << 20)
    path = tar(tmp_path / "archive", large(name, 1 << 22), mode=mode)
    assert path.stat().st_size < 1 << 14
    with pytest.raises(DataError, match="archive unpacks to more than"):
        read(path, largest=1 << 30)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_zeros_after_the_end_count_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(streams, "UNPACKED_LIMIT", 1 << 20)
    path = tar(tmp_path / "archive")
    path.write_bytes(pack(path.read_bytes() + bytes(1 << 22)))
    with pytest.raises(DataError, match="archive unpacks to more than"):
        read(path)


def test_a_zip_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "UNPACKED_LIMIT", 15)
    with pytest.raises(DataError, match="archive unpacks to more than"):
        read(zipped(tmp_path / "archive"))


def test_a_zip_that_lies_about_a_size(tmp_path: Path) -> None:
    """The size in the directory is what is read at most; the checksum then does not fit."""
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("evil.bin", bytes(100_000))
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (10).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(DataError, match="archive cannot be read"):
        read(path)


def test_a_zip_with_a_password(tmp_path: Path) -> None:
    path = zipped(tmp_path / "archive")
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(mark)
        while at >= 0:
            content[at + offset] |= 1
            at = content.find(mark, at + 1)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"archive cannot be read \(.*(encrypted|password)"):
        read(path)


@pytest.mark.parametrize("largest", [5, 0])
@pytest.mark.parametrize("write", [tar, zipped])
def test_a_wanted_file_that_is_too_large(tmp_path: Path, write: Callable[[Path], Path], largest: int) -> None:
    with pytest.raises(DataError, match=r"in .*archive has [56] bytes, more than the [50] allowed"):
        read(write(tmp_path / "archive"), largest)


@pytest.mark.parametrize("write", [tar, zipped])
def test_every_cut_is_an_error_or_loses_nothing(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "archive")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(DataError, match="archive cannot be read"):
        read(path)


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_compressed_tar_is_checked_to_its_end(tmp_path: Path, mode: str) -> None:
    """All members come before the damage, and still it is found."""
    path = tar(tmp_path / "archive", mode=mode)
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # of the gzip checksum, the bz2 checksum, and the xz footer
    path.write_bytes(content)
    with pytest.raises(DataError, match="archive cannot be read"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", bytes(2000), b"PK but no more"])
def test_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "archive"
    path.write_bytes(content)
    if any(content) or not content:
        with pytest.raises(DataError, match="archive cannot be read"):
            read(path)
    else:
        assert read(path) == {}  # a tar of no members, whose end is zeros


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing cannot be read .*No such file"):
        read(tmp_path / "nothing")
