"""One hash for every file and fingerprint: xxh3_128, fast enough to be computed always. Imports no torch."""

from pathlib import Path

import xxhash

_BLOCK_BYTES = 2**22


def hash_file(path: Path) -> tuple[int, str]:
    """Size in bytes and xxh3_128 of a file.

    Raises:
        OSError: it cannot be read.
    """
    digest, num_bytes = xxhash.xxh3_128(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            num_bytes += len(block)
    return num_bytes, digest.hexdigest()
