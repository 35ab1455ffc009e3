"""Every loader reads a damaged file or says what is wrong with it; ``python tests/fuzz.py`` runs many more."""

import pytest
from fuzz import LOADERS, complaint, fuzz, fuzz_commands


@pytest.mark.parametrize("name", LOADERS)
def test_damaged_files_are_read_or_named_in_one_line(name):
    assert complaint(LOADERS[name], []) is None, "the example itself is valid"
    examples = {"sweep": 60, "resume": 30}.get(name, 150)
    messages = fuzz(LOADERS[name], examples)
    assert sum(messages.values()) >= examples
    assert len(messages) > 3 or name == "letor_copy", "the damage is noticed"


def test_commands_run_or_say_in_one_line_what_is_wrong():
    messages = fuzz_commands(100)
    assert messages["(runs)"] > 5 and len(messages) > 20
