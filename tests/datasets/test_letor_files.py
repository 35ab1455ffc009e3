"""LETOR files: what is read, what is kept, and what is said about files that cannot be read."""

import gzip
import os

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.datasets import letor as read
from jaxrank.datasets import letor_files, synthetic_letor

TRAIN = """2 qid:10 1:1.0 2:5 4:7 # first
0 qid:10 1:3.0 2:5 3:2 4:7

1 qid:7 1:-1 3:4 4:8
0 qid:7 1:-1 3:8 4:8
4 qid:7 3:6 4:8
"""
TEST = "1 qid:1 1:0 5:2\n0 qid:1 1:10 3:1\n"


def write(folder, train=TRAIN, test=TEST, suffix=".txt"):
    folder.mkdir(exist_ok=True)
    for name, text in (("train", train), ("test", test)):
        (folder / f"{name}{suffix}").write_text(text)
    return folder


def test_features_are_scaled_by_query_and_constant_ones_dropped(tmp_path):
    """By hand: feature 2 varies in query 10 never, in query 7 never; feature 4 neither; 5 is not in the training."""
    data = read(write(tmp_path / "d"), cache=False)
    assert data.train.starts.tolist() == [0, 2, 5] and data.train.grades.tolist() == [2, 0, 1, 0, 4]
    np.testing.assert_allclose(data.train.features, [[0, 0], [1, 1], [0, 0], [0, 1], [1, 0.5]])
    np.testing.assert_allclose(data.test.features, [[0, 0], [1, 1]])
    assert data.validation is None and data.train.max_documents == 3 and data.train.num_grades == 5


def test_raw_features_can_be_kept(tmp_path):
    data = read(write(tmp_path / "d"), normalize=False, cache=False)
    np.testing.assert_allclose(data.train.features[0], [1, 5, 0, 7, 0])
    np.testing.assert_allclose(data.test.features[0], [0, 0, 0, 0, 2])


def test_gzip_folds_validation_and_other_names_are_found(tmp_path):
    fold = tmp_path / "Fold2"
    fold.mkdir(parents=True)
    for name in ("set1.train", "set1.valid", "set1.test"):
        with gzip.open(fold / f"{name}.txt.gz", "wt") as file:
            file.write(TRAIN)
    data = read(tmp_path, fold=2, cache=False)
    assert data.validation is not None and data.validation.grades.tolist() == [2, 0, 1, 0, 4]


def test_group_files_stand_for_query_ids(tmp_path):
    lines = [" ".join(w for w in line.split() if not w.startswith("qid")) for line in TRAIN.splitlines()]
    folder = tmp_path / "d"
    folder.mkdir()
    for name in ("rank.train", "rank.test"):
        (folder / name).write_text("\n".join(lines) + "\n")
        (folder / f"{name}.query").write_text("2\n3\n")
    assert read(folder, cache=False).train == read(write(tmp_path / "e"), cache=False).train
    (folder / "rank.train.query").write_text("2\n2\n")
    with pytest.raises(ValueError, match=r"rank\.train\.query: the groups must add up to 5 documents; got 4"):
        read(folder, cache=False)
    (folder / "rank.train.query").write_text("2\nthree\n")
    with pytest.raises(ValueError, match=r"rank\.train\.query:2: must be the number of documents .*; got 'three'"):
        read(folder, cache=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 1:3 2:4", r"the second word must be qid:<query>; got '1:3'"),
        ("1", r"the second word must be qid:<query>; got ''"),
        ("1 qid: 1:3", "qid must not be empty"),
        ("1 qid:7 1:nan", r"feature 1 must be finite; got nan"),
        ("1 qid:7 1:1 2:inf", r"feature 2 must be finite; got inf"),
        ("1 qid:7 0:3 1:4", r"feature indices must count from 1; got 0"),
        ("1 qid:7 2:3 1:4", r"feature indices must increase; 2 comes before it; got 1"),
        ("1 qid:7 1:2 1:4", r"feature indices must increase; 1 comes before it; got 1"),
        ("1 qid:7 1:x", r"features must be <index>:<value>; got '1:x'"),
        ("1 qid:7 1:2 b:3", r"features must be <index>:<value>; got 'b:3'"),
        ("1 qid:7 1", r"features must be <index>:<value>; got '1'"),
        ("1 qid:10 1:3", r"the lines of qid 10 must be together; others come in between"),
        ("5 qid:7 1:3", r"the grade must be an integer from 0 to 4; got '5'"),
        ("-1 qid:7 1:3", r"the grade must be an integer from 0 to 4; got '-1'"),
        ("0.5 qid:7 1:3", r"the grade must be an integer from 0 to 4; got '0\.5'"),
        ("nan qid:7 1:3", r"the grade must be an integer from 0 to 4; got 'nan'"),
        ("good qid:7 1:3", r"the grade must be an integer from 0 to 4; got 'good'"),
    ],
)
def test_malformed_lines_are_named_by_file_and_line(tmp_path, line, message):
    folder = write(tmp_path / "d", train=f"{TRAIN}{line}\n0 qid:8 1:1\n")
    with pytest.raises(ValueError, match=rf"train\.txt:7: {message}"):
        read(folder, cache=False)


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="path must be a folder with the files of a LETOR dataset; there is none at"):
        read(tmp_path / "nowhere")
    (tmp_path / "train.txt").write_text(TRAIN)
    with pytest.raises(ValueError, match=r"path must hold a test file, as test\.txt or test\.txt\.gz"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"test\.txt:1: the file is empty"):
        read(write(tmp_path / "e", test=""), cache=False)
    with pytest.raises(ValueError, match=r"test\.txt:1: no documents in this file"):
        read(write(tmp_path / "f", test="# nothing\n"), cache=False)
    with pytest.raises(ValueError, match="features must differ between documents of a query"):
        read(write(tmp_path / "g", train="1 qid:1 1:2\n0 qid:1 1:2\n"), cache=False)


def test_the_copy_is_used_until_the_text_or_the_options_change(tmp_path, monkeypatch):
    folder, copies = write(tmp_path / "d"), tmp_path / "copies"
    first = read(folder, cache=copies)
    (copy,) = copies.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(letor_files, "_read", lambda *_: pytest.fail("the text is not read again"))
        again = read(folder, cache=copies)
        assert again.train == first.train and again.test == first.test
        monkeypatch.setenv("JAXRANK_CACHE", str(copies))
        assert read(folder).train == first.train
    assert read(folder, normalize=False, cache=copies).train != first.train
    assert len(list(copies.iterdir())) == 2, "options have copies of their own"

    changed = TRAIN.replace("4 qid:7", "3 qid:7")  # of the same size
    (folder / "train.txt").write_text(changed)
    os.utime(folder / "train.txt", ns=(1, 1))
    assert read(folder, cache=copies).train.grades.tolist()[-1] == 3
    assert len(list(copies.iterdir())) == 2, "a new copy takes the place of the old"

    copy.write_bytes(b"half a file")
    assert read(folder, cache=copies).train.grades.tolist()[-1] == 3, "a broken copy is made anew"
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert read(folder, cache=blocked).test == first.test, "without a place for copies, the text is read"


def test_synthetic_queries_are_reproducible_graded_and_of_many_sizes():
    data, again = synthetic_letor(50, 6), synthetic_letor(50, 6)
    assert data.train == again.train and data.validation is not None
    assert data.train.num_queries == 50 and data.test.num_queries == 16
    grades = np.bincount(np.asarray(data.train.grades), minlength=5) / len(data.train.grades)
    assert grades == pytest.approx([0.56, 0.29, 0.13, 0.015, 0.005], abs=0.01)
    sizes = np.diff(np.asarray(data.train.starts))
    assert sizes.min() < 10 < 30 < sizes.max()
    assert float(data.train.features.min()) == 0 and float(data.train.features.max()) == 1
    with pytest.raises(ValueError, match="num_queries must be a positive integer; got 0"):
        synthetic_letor(0)
    with pytest.raises(ValueError, match="mean_documents must be an integer of at least 3; got 2"):
        synthetic_letor(5, mean_documents=2)


def test_the_real_samples_are_read_whole(real_data, tmp_path):
    mslr = read(real_data / "mslr-web-sample", cache=tmp_path)
    assert (mslr.train.num_queries, mslr.test.num_queries, mslr.train.max_documents) == (43, 43, 308)
    assert mslr.train.features.shape == (5000, 131), "136 features, 5 of them constant"
    light = jr.datasets.letor(real_data / "lightgbm-rank", cache=tmp_path)
    assert (light.train.num_queries, light.test.num_queries, light.train.max_documents) == (201, 50, 27)
