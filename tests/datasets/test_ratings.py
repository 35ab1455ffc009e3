"""Ratings in four layouts, and the world of CascadeHybrid's experiments made of them, against plain Python."""

from collections import Counter

import numpy as np
import pytest

import jaxrank as jr
from jaxrank.datasets import movielens, topic_bandit, yahoo_music
from jaxrank.datasets.ratings import Ratings

# user, item, rating: users 7 and 3 have 4 ratings, 9 has 3, 4 has 1; items 20 and 10 have 4, 30 has 3, 40 has 1.
RATED = [
    (7, 10, 5), (7, 20, 4), (7, 30, 5), (7, 40, 1), (3, 10, 3), (3, 20, 5), (3, 30, 2), (9, 20, 5),
    (9, 10, 5), (9, 30, 4), (4, 20, 1), (3, 10, 3),
]  # fmt: skip
GENRES = {10: ["Comedy"], 20: ["Comedy", "Drama"], 30: ["Drama", "Comedy"], 40: ["War"]}


def write_csv(folder):
    lines = [f"{u},{i},{r}.0,{100 + n}" for n, (u, i, r) in enumerate(RATED)]
    (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n")
    movies = [f'{i},"A, B ({i})",{"|".join(g)}' for i, g in GENRES.items()]
    (folder / "movies.csv").write_text("\n".join(["movieId,title,genres", *movies]) + "\n")


def write_dat(folder):
    (folder / "ratings.dat").write_text("".join(f"{u}::{i}::{r}::99\n" for u, i, r in RATED))
    movies = "".join(f"{i}::Episode I: Caf\xe9 ({i})::{'|'.join(g)}\n" for i, g in GENRES.items())
    (folder / "movies.dat").write_text(movies, encoding="latin-1")


def write_100k(folder):
    (folder / "u.data").write_text("".join(f"{u}\t{i}\t{r}\t99\n" for u, i, r in RATED))
    names = ["Comedy", "Drama", "War"]
    (folder / "u.genre").write_text("".join(f"{name}|{n}\n" for n, name in enumerate(names)) + "\n")
    flags = {i: "|".join(str(int(name in g)) for name in names) for i, g in GENRES.items()}
    (folder / "u.item").write_text("".join(f"{i}|Film|01-Jan-1995||http://x|{flags[i]}\n" for i in GENRES))


def write_yahoo(folder):
    """Each song has the first of its genres, two levels down; the ratings are in two files."""
    tops = {"Comedy": 1, "Drama": 4, "War": 0}
    hierarchy = ["0\t0\t1\tWar", "1\t1\t1\tComedy", "2\t1\t2\tSatire", "3\t2\t3\tDark Satire", "4\t4\t1\tDrama"]
    (folder / "genre-hierarchy.txt").write_text("\n".join(hierarchy) + "\n")
    leaf = {1: 3, 4: 4, 0: 0}
    songs = "".join(f"{i}\t5\t6\t{leaf[tops[g[0]]]}\n" for i, g in GENRES.items())
    (folder / "song-attributes.txt").write_text(songs)
    for name, part in (("train_0.txt", RATED[:7]), ("test_0.txt", RATED[7:])):
        (folder / name).write_text("".join(f"{u}\t{i}\t{r}\n" for u, i, r in part))


LAYOUTS = {"csv": (write_csv, movielens), "dat": (write_dat, movielens), "100k": (write_100k, movielens)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_movielens_layouts_hold_the_same(layout, tmp_path):
    write, load = LAYOUTS[layout]
    write(tmp_path)
    ratings = load(tmp_path, num_users=3, num_items=3)
    assert ratings.users.tolist() == [3, 7, 9], "most active first, equals by id"
    assert ratings.items.tolist() == [10, 20, 30], "item 10 has five ratings, one of them twice"
    np.testing.assert_array_equal(ratings.attractive, [[0, 1, 0], [1, 0, 1], [1, 1, 0]])
    assert ratings.topic_names == ("Comedy", "Drama", "War")
    np.testing.assert_array_equal(ratings.topics, [[1, 0, 0], [1, 1, 0], [1, 1, 0]])


def test_yahoo_music_has_the_top_level_genre(tmp_path):
    write_yahoo(tmp_path)
    ratings = yahoo_music(tmp_path)
    assert ratings.users.tolist() == [3, 7, 9, 4] and ratings.items.tolist() == [10, 20, 30, 40]
    assert ratings.attractive.sum() == 5
    by_item = {i: [n for n, flag in zip(ratings.topic_names, row, strict=True) if flag]
               for i, row in zip(ratings.items.tolist(), ratings.topics, strict=True)}  # fmt: skip
    assert by_item == {10: ["Comedy"], 20: ["Comedy"], 30: ["Drama"], 40: ["War"]}


def test_reading_in_pieces_changes_nothing(tmp_path, monkeypatch):
    write_csv(tmp_path)
    whole = movielens(tmp_path)
    monkeypatch.setattr("jaxrank.datasets.ratings._PIECE", 3)
    pieces = movielens(tmp_path)
    np.testing.assert_array_equal(whole.attractive, pieces.attractive)
    assert whole.users.tolist() == pieces.users.tolist() and whole.items.tolist() == pieces.items.tolist()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7,10,good,1", r"ratings\.csv:14: the rating must be a number from 0 to 5; got 'good'"),
        ("7,10,80,1", r"ratings\.csv:14: the rating must be a number from 0 to 5; got '80'"),
        ("seven,10,5,1", r"ratings\.csv:14: the user must be an integer of at most 18 digits; got 'seven'"),
        ("7,ten,5,1", r"ratings\.csv:14: the item must be an integer of at most 18 digits; got 'ten'"),
        ("7,١٢,5,1", r"ratings\.csv:14: the item must be an integer of at most 18 digits; got .١٢."),
        ("7,10,١,1", r"ratings\.csv:14: the rating must be a number from 0 to 5; got .١."),
        ("7,10", r"ratings\.csv:14: must have a user, an item and a rating; got '7,10'"),
        ("7,99,5,1\n" * 20, "rated item 99 is not in the file of items"),
    ],
)
def test_bad_lines_are_named(line, message, tmp_path):
    write_csv(tmp_path)
    with open(tmp_path / "ratings.csv", "a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=message):
        movielens(tmp_path)


def test_bad_files_of_items_are_named(tmp_path):
    write_csv(tmp_path)
    (tmp_path / "movies.csv").write_text("movieId,title,genres\n10,Film\n")
    with pytest.raises(ValueError, match=r"movies\.csv:2: must be movieId,title,genres; got 2 columns"):
        movielens(tmp_path)
    (tmp_path / "movies.csv").unlink()
    with pytest.raises(ValueError, match=r"folder with movies\.csv; there is none"):
        movielens(tmp_path)
    with pytest.raises(ValueError, match="folder with train"):
        yahoo_music(tmp_path)
    write_yahoo(tmp_path)
    (tmp_path / "song-attributes.txt").write_text("10\t5\t6\t77\n")
    with pytest.raises(ValueError, match=r"song-attributes\.txt:1: genre 77 is not in genre-hierarchy\.txt"):
        yahoo_music(tmp_path)
    with pytest.raises(ValueError, match=r"folder with ratings\.csv, ratings\.dat or u\.data"):
        movielens(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="num_users must be a positive integer; got 0"):
        write_csv(tmp_path)
        movielens(tmp_path, num_users=0)


def test_the_world_is_that_of_section_5_1():
    """Every number from its equation, one user and item at a time."""
    rng = np.random.default_rng(0)
    attractive = rng.uniform(size=(40, 12)) < 0.3
    attractive[5] = False  # finds nothing attractive: has no preference
    flags = np.argsort(rng.uniform(size=(12, 5)), axis=1) < 2
    flags = flags[:, np.argsort(-flags.sum(axis=0), kind="stable")]
    ratings = Ratings(attractive, flags, tuple("abcde"), np.arange(40), np.arange(12))
    environment = topic_bandit(ratings, num_topics=4, num_features=3, list_size=5, seed=1)

    order = np.random.default_rng(1).permutation(40)
    halves = attractive[order[:20]], attractive[order[20:]]
    for half, x in zip(halves, (environment.topics, environment.true_topics), strict=True):
        for a in range(12):
            for j in range(4):
                likers = sum(1 for u in range(20) if half[u, a] and flags[a, j])
                interested = sum(1 for u in range(20) if any(half[u, b] and flags[b, j] for b in range(12)))
                assert x[a, j] == pytest.approx(likers / interested, abs=1e-6)
    users = [u for u in halves[1] if any(u[a] and flags[a, :4].any() for a in range(12))]
    assert environment.num_users == len(users)
    z = np.asarray(environment.features, np.float64)
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, atol=1e-6)
    _, eigenvectors = np.linalg.eigh(halves[0].T.astype(float) @ halves[0])
    projected = halves[0].T.astype(float) @ halves[0] @ eigenvectors[:, -3:] @ eigenvectors[:, -3:].T
    length = np.sqrt(np.diag(projected))  # ‖VΣ‖ of each row: VΣ²Vᵀ is the projected Gram matrix
    np.testing.assert_allclose(z @ z.T, projected / np.outer(length, length), atol=1e-5)
    for number, user in enumerate(users):
        per_topic = [sum(user[a] and flags[a, j] for a in range(12)) for j in range(4)]
        np.testing.assert_allclose(environment.preference[number], np.array(per_topic) / sum(per_topic), atol=1e-6)
        beta = np.linalg.solve(z.T @ z, z.T @ user)
        np.testing.assert_allclose(environment.relevance[number], beta / np.linalg.norm(beta), atol=1e-4)
    plain = topic_bandit(ratings, num_topics=4, num_features=3, list_size=5, seed=1, normalize_relevance=False)
    for number, user in enumerate(users):
        np.testing.assert_allclose(plain.relevance[number], np.linalg.solve(z.T @ z, z.T @ user), atol=1e-4)
    assert topic_bandit(ratings, num_features=3, num_users=4).num_users == 4


def test_an_item_that_nobody_in_the_train_half_likes_has_no_relevance_features():
    """Its row of VΣ is 0 but for rounding errors, which must not be scaled to length 1."""
    rng = np.random.default_rng(0)
    attractive = rng.uniform(size=(60, 40)) < 0.2
    order = np.random.default_rng(0).permutation(60)
    unliked = np.arange(0, 40, 3)
    attractive[np.ix_(order[:30], unliked)] = False
    ratings = Ratings(attractive, np.ones((40, 2), bool), ("a", "b"), np.arange(60), np.arange(40))
    length = np.linalg.norm(np.asarray(topic_bandit(ratings).features), axis=1)
    assert (length[unliked] == 0).all()
    np.testing.assert_allclose(np.delete(length, unliked), 1, atol=1e-6)


def test_bad_options_of_the_world():
    ratings = jr.datasets.synthetic_ratings(20, 30)
    with pytest.raises(ValueError, match="num_topics must be an integer from 1 to 20; got 21"):
        topic_bandit(ratings, num_topics=21)
    with pytest.raises(ValueError, match="num_features must be an integer from 1 to 10, users or items; got 11"):
        topic_bandit(ratings, num_features=11)
    with pytest.raises(ValueError, match="normalize_relevance must be True or False; got 'false'"):
        topic_bandit(ratings, normalize_relevance="false")
    for seed in ("a", None, -1, 1.5):
        with pytest.raises(ValueError, match=r"seed must be an integer of at least 0; got"):
            topic_bandit(ratings, seed=seed)
    with pytest.raises(ValueError, match=r"ratings must be what movielens, .* returned; got array"):
        topic_bandit(np.zeros((3, 3)))
    nothing = Ratings(np.zeros((20, 30), bool), ratings.topics, ratings.topic_names, ratings.users, ratings.items)
    with pytest.raises(ValueError, match="a user in the test half who finds something attractive"):
        topic_bandit(nothing)


def test_movielens_small_is_read_whole(real_data):
    ratings = movielens(real_data, num_users=610, num_items=1000)
    assert ratings.attractive.shape == (610, 1000) and ratings.topics.shape == (1000, 20)
    with open(real_data / "movielens-small" / "ratings.csv") as file:
        rows = [line.split(",") for line in file][1:]
    counts = Counter(int(row[1]) for row in rows)
    most = sorted(counts, key=lambda item: (-counts[item], item))[:1000]
    assert ratings.items.tolist() == most
    most_rated = set(most)
    fives = {(int(user), int(item)) for user, item, rating, _ in rows if rating == "5.0" and int(item) in most_rated}
    user, item = np.nonzero(ratings.attractive)
    assert set(zip(ratings.users[user].tolist(), ratings.items[item].tolist(), strict=True)) == fives
    assert set(ratings.topic_names[:2]) == {"Drama", "Comedy"}
    environment = topic_bandit(ratings, list_size=10)
    assert 250 < environment.num_users <= 305
    assert 0 < float(np.asarray(environment.optimal_attraction).mean()) < 1
