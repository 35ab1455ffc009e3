"""OLRankNet, OLLambdaRank, P2NeurRank and PDGD with an MLP, against their plain references."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from driver import record
from reference import neural
from reference.pairrank import ordered_blocks
from reference.pdgd import pair_weight, preferences
from streams import documents, indices, stream

import jaxrank as jr
from jaxrank.command.cli import main
from jaxrank.policies._blocks import random_words

STEPS, HIDDEN, LIST_SIZE = 240, 4, 6
MLP = jr.rankers.mlp(HIDDEN)
COMMON = {"ranker": MLP, "learning_rate": 0.3, "batch_size": 5, "window": 50}
POLICIES = {
    "OLRankNet": jr.OLRankNet(**COMMON, alpha=0.1, exploration="random", gradient_steps=2),
    "OLRankNet, full": jr.OLRankNet(**COMMON, alpha=0.1, confidence="full", pairs="matched"),
    "OLLambdaRank": jr.OLLambdaRank(**COMMON, alpha=0.1, train_every=2, gradient_steps=3),
    "P2NeurRank": jr.P2NeurRank(**COMMON, num_rankers=3, noise=0.2, exploration="random"),
}


def followed(policy, environment):
    def draws(rank_key, update_key):
        """The random numbers of the list, of matched pairs, of the mini-batches and of the noise."""
        pair_key, batch_key, *noise_key = jax.random.split(update_key, 3 if isinstance(policy, jr.P2NeurRank) else 2)
        return {
            "list": random_words(rank_key, policy.exploration, LIST_SIZE, environment.queries.max_documents),
            "pairs": jax.random.bits(pair_key, (LIST_SIZE,), jnp.uint32),
            "batches": jax.random.uniform(batch_key, (policy.gradient_steps, policy.batch_size)),
            "noise": [jax.random.normal(key, (policy.num_rankers, LIST_SIZE // 2)) for key in noise_key],
        }

    def statistics(policy, state):
        confidence = getattr(state, "confidence", ())
        return {"theta": theta_of(policy, state), "confidence": confidence, "num_pairs": state.history.num_pairs}

    def theta_of(policy, state):
        """[N, p]: every network's parameters."""
        if not isinstance(policy, jr.P2NeurRank):
            return policy.weights(state)[None]
        return jax.vmap(lambda params: jax.flatten_util.ravel_pytree(params)[0])(state.networks.params)

    run = record(policy, environment, STEPS, draws=draws, statistics=statistics)
    run.indices = indices(environment, STEPS)
    return run


def plain(policy, num_features, theta):
    networks = [neural.Network(own, num_features, HIDDEN) for own in theta]
    lam, rate = float(policy.regularization), float(policy.learning_rate)
    common = {"learning_rate": rate, "window": policy.window, "exploration": policy.exploration}
    if isinstance(policy, jr.P2NeurRank):
        return neural.P2NeurRank(networks, lam, **common)
    made = neural.OLLambdaRank if isinstance(policy, jr.OLLambdaRank) else neural.OLRankNet
    return made(networks[0], lam, float(policy.alpha), **common, full=policy.confidence == "full")


def rows(uniform, step, window):
    """The window's rows of the lists in a mini-batch: uniform over those that are stored."""
    filled = min(step, window)
    return [(step - min(int(u * u.dtype.type(filled)), filled - 1)) % window for u in uniform]


@pytest.mark.parametrize("name", POLICIES)
def test_lists_and_parameters_equal_the_reference(name):
    """At every step, given the run's own parameters before it; lists, the number of pairs, A and θ after it."""
    policy, environment = POLICIES[name], stream("perfect", list_size=LIST_SIZE)
    run = followed(policy, environment)
    theta, draws = run.statistics["theta"], run.draws
    expected = plain(policy, environment.queries.num_features, run.first.statistics["theta"])
    num_blocks, moved = [], 0.0
    for t in range(STEPS):
        before = theta[t - 1] if t else run.first.statistics["theta"]
        for network, own in zip(expected.networks, before, strict=True):
            network.theta = own.astype(np.float64)
        X, _ = documents(environment, run.indices[t])
        ranking = expected.rank(X, draws["list"][t].tolist(), LIST_SIZE)
        num_blocks.append(len(ordered_blocks(len(X), expected.certain(X))) / len(X))
        assert run.rankings[t][: len(ranking)].tolist() == ranking, f"list at step {t + 1}"
        due = (t + 1) % policy.train_every == 0
        batches = [rows(u, t + 1, policy.window) for u in draws["batches"][t]] if due else []
        more = {"noise": float(policy.noise) * draws["noise"][0][t]} if name == "P2NeurRank" else {}
        if policy.pairs == "matched":
            more["words"] = draws["pairs"][t]
        expected.update(X, run.rankings[t].tolist(), run.clicks[t], batches, **more)
        after = np.array([network.theta for network in expected.networks])
        np.testing.assert_allclose(theta[t], after, atol=1e-5, err_msg=f"step {t + 1}")
        moved = max(moved, np.abs(after - before).max())
        assert run.statistics["num_pairs"][t] == expected.num_pairs
    if name == "OLRankNet, full":
        root = run.statistics["confidence"][-1]
        np.testing.assert_allclose(root @ root.T, np.linalg.inv(expected.A), rtol=1e-3, atol=5e-3)
    elif name != "P2NeurRank":
        np.testing.assert_allclose(run.statistics["confidence"][-1], np.diag(expected.A), rtol=1e-4)
    assert moved > 0.01 and expected.num_pairs > 100
    early, late = np.mean(num_blocks[:40]), np.mean(num_blocks[-40:])
    assert min(num_blocks) < 0.5 and late > early + 0.1, f"blocks shrink: {early:.2f} to {late:.2f} blocks a document"


def test_pdgd_with_an_mlp_takes_the_gradient_steps_of_the_reference():
    """θ after every step is θ + η·Σ ρ·∇P(d_k ≻ d_l), with the gradients of the network by the chain rule."""
    environment = stream("navigational", list_size=LIST_SIZE)
    policy = jr.NeuralPDGD(ranker=MLP, learning_rate=0.3)
    run = record(policy, environment, 60, statistics=lambda policy, state: policy.weights(state))
    moved = 0.0
    for t, index in enumerate(indices(environment, 60)):
        X, _ = documents(environment, index)
        before = run.statistics[t - 1] if t else run.first.statistics
        network = neural.Network(before, environment.queries.num_features, HIDDEN)
        scores, ranking = [network.score(x) for x in X], run.rankings[t].tolist()
        for k, m in preferences(run.clicks[t], len(X)):
            weight = pair_weight(scores, ranking[: len(X)], k, m)
            slope = network.gradient(X[ranking[k]]) - network.gradient(X[ranking[m]])
            before = before + 0.3 * weight * slope
            moved += weight
        np.testing.assert_allclose(run.statistics[t], before, atol=1e-5, err_msg=f"step {t + 1}")
    assert moved > 1


def test_the_default_of_neural_pdgd_is_a_network_that_learns():
    """64 hidden units; better than its own beginning by 0.1 of NDCG on the training queries."""
    policy, environment = jr.NeuralPDGD(), stream("perfect", list_size=5)
    assert policy.ranker is jr.rankers.mlp(64) and isinstance(policy, jr.PDGD)
    probe = {"learnt": jr.probes.OfflineNDCG(environment.queries)}
    run = jr.simulate(policy, environment, 1000, num_seeds=4, record_at=(1, 1000), probes=probe, metrics=("ndcg",))
    assert float(run["learnt"][:, -1].mean()) > float(run["learnt"][:, 0].mean()) + 0.1


def test_a_stopped_sweep_continues_bit_for_bit(tmp_path):
    """Two learning rates side by side; the window, the noise and all networks are in the checkpoint."""
    policy = jr.P2NeurRank(**COMMON | {"learning_rate": [0.3, 0.03]}, num_rankers=2)
    environment = stream("perfect", list_size=LIST_SIZE)
    options = {"num_seeds": 2, "num_records": 4, "metrics": ("ndcg",), "call_intervals": 1}
    options["probes"] = {"learnt": jr.probes.OfflineNDCG(environment.queries)}
    straight = jr.simulate(policy, environment, 80, progress=False, **options)

    def stop(step):
        if step >= 40:
            raise KeyboardInterrupt

    options |= {"checkpoint_dir": tmp_path, "checkpoint_every": "1 calls"}
    with pytest.raises(KeyboardInterrupt):
        jr.simulate(policy, environment, 80, progress=stop, **options)
    resumed = jr.simulate(policy, environment, 80, progress=False, resume=True, **options)
    for name in ("ndcg", "learnt"):
        np.testing.assert_array_equal(resumed[name], straight[name])
    assert (straight["learnt"][0] != straight["learnt"][1]).any(), "the learning rate matters"


@pytest.mark.slow
def test_neural_policies_run_by_the_command(tmp_path, capsys):
    names = ("neural_pdgd", "p2neurrank:num_rankers=2,noise=0.2", "ol_ranknet:exploration=random", "ol_lambdarank")
    policies = [word for name in names for word in ("--policy", name)]
    sizes = ["--queries", "8", "--steps", "20", "--records", "2", "--seeds", "2"]
    assert main(["run", *policies, *sizes, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    assert "a stream of 8 synthetic queries" in capsys.readouterr().out


@pytest.mark.parametrize("name", POLICIES)
def test_policies_survive_pickling(name):
    again = pickle.loads(pickle.dumps(POLICIES[name]))
    assert repr(again) == repr(POLICIES[name])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: jr.OLRankNet(alpha=0.0), r"OLRankNet\.alpha must be positive and finite; got 0\.0"),
        (lambda: jr.OLRankNet(confidence="half"), r"OLRankNet\.confidence must be 'diagonal' or 'full'; got 'half'"),
        (lambda: jr.OLLambdaRank(window=0), r"OLLambdaRank\.window must be a positive integer; got 0"),
        (lambda: jr.P2NeurRank(num_rankers=0), r"P2NeurRank\.num_rankers must be a positive integer; got 0"),
        (lambda: jr.P2NeurRank(noise=-1.0), r"P2NeurRank\.noise must be positive and finite; got -1\.0"),
    ],
)
def test_bad_options_name_the_field_and_the_value(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_lists_of_one_position_are_refused():
    with pytest.raises(ValueError, match="P2NeurRank needs lists of at least 2 positions, for pairs; got 1"):
        jr.simulate(jr.P2NeurRank(), stream(list_size=1), 2, progress=False)
