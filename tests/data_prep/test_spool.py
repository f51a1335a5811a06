from pathlib import Path

from data_prep.spool import Spool


def test_texts_come_back_by_key_and_the_file_goes(tmp_path: Path) -> None:
    texts = {5: "fünf", 2**64 - 1: "last", 0: "", 3: "three\nlines\n"}
    with Spool(tmp_path / "spool") as spool:
        for key, text in texts.items():
            spool.append(key, text.encode())
        assert len(spool) == 4
        assert spool.num_bytes == sum(len(text.encode()) for text in texts.values())
        assert list(spool) == list(spool) == ["", "three\nlines\n", "fünf", "last"]
        spool.append(1, b"later")
        assert list(spool)[1] == "later"
    assert not list(tmp_path.iterdir())


def test_batches_end_where_the_size_is_reached(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        assert list(spool.batches(10)) == []
        for key in range(7):
            spool.append(key, b"x" * 4)
        assert [len(batch) for batch in spool.batches(10)] == [3, 3, 1]
        assert [len(batch) for batch in spool.batches(1)] == [1] * 7
