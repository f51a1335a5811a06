from collections import Counter

from data_prep.splits import TEST, TRAIN, VALIDATION, content_digest, split_key, split_of

TEXTS = [f"document {i}".encode() for i in range(20_000)]


def drawn(seed: int, validation: float = 0.02, test: float = 0.04) -> list[str]:
    return [split_of(split_key(content_digest(text), seed), validation, test) for text in TEXTS]


def test_splits_have_about_their_fractions() -> None:
    counts = Counter(drawn(seed=0))
    assert abs(counts[VALIDATION] / len(TEXTS) - 0.02) < 0.005
    assert abs(counts[TEST] / len(TEXTS) - 0.04) < 0.005
    assert counts[TRAIN] + counts[VALIDATION] + counts[TEST] == len(TEXTS)


def test_the_seed_redraws_and_a_larger_fraction_only_adds() -> None:
    assert drawn(seed=0) == drawn(seed=0)
    assert drawn(seed=0) != drawn(seed=1)
    small, large = drawn(seed=0, test=0.02), drawn(seed=0, test=0.1)
    assert all(after == TEST for before, after in zip(small, large, strict=True) if before == TEST)


def test_keys_are_stable_across_releases() -> None:
    assert split_key(content_digest("Frühling".encode()), 7) == 17323932124075373977
