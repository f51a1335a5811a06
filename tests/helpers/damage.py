"""Ways in which a file goes bad."""

from pathlib import Path


def flip_a_byte(path: Path) -> None:
    """Changes one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut_in_half(path: Path) -> None:
    """Loses the second half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
