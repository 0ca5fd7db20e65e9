"""How the chunk files of vLLM's file tier are laid out on disk, read back from the disk.

vLLM maps a key to a path (`FileMapper.get_file_name` in `vllm/v1/kv_offload/file_mapper.py`); this is the way back:
`<base>_r<rank>/<hhh>/<hh>_g<group>/<block hash in hex>.bin`. A file being written has a suffix after `.bin`
(`vllm/v1/kv_offload/tiering/fs/io.py`), so it is no chunk file yet.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vllm.v1.kv_offload.base import OffloadKey, make_offload_key
from vllm.v1.kv_offload.file_mapper import FileMapper

_CHUNK_FILE = re.compile(r"(?P<head>[0-9a-f]{3})/(?P<next>[0-9a-f]{2})_g(?P<group>\d+)/(?P<hash>[0-9a-f]+)\.bin")


class ChunkFile(NamedTuple):
    """One chunk on disk: its size in bytes, and when it was written in nanoseconds of the file system's clock."""

    key: OffloadKey
    path: Path
    size: int
    written_ns: int


def chunk_root(mapper: FileMapper) -> Path:
    """Return the folder below which the mapper puts every chunk of its rank."""
    return Path(f"{mapper.base_path}_r{mapper.rank}")


def find_chunks(mapper: FileMapper) -> Iterator[ChunkFile]:
    """Yield every whole chunk file below the mapper's folder, in no order."""
    root = chunk_root(mapper)
    for path in root.glob("*/*/*.bin"):
        named = _CHUNK_FILE.fullmatch(path.relative_to(root).as_posix())
        if named is None:
            continue
        key = make_offload_key(bytes.fromhex(named["hash"]), int(named["group"]))
        # What the mapper would not look for under this name is not ours.
        if mapper.get_file_name(key) == str(path):
            stat = path.stat()
            yield ChunkFile(key, path, stat.st_size, stat.st_mtime_ns)


def find_unfinished(mapper: FileMapper) -> Iterator[Path]:
    """Yield what a writer that died left behind: files never renamed to a chunk's name."""
    yield from chunk_root(mapper).glob("*/*/*.bin_*.tmp")
