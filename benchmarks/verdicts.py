"""Collects the verdicts of all results into benchmarks/results/verdicts.md: ``python benchmarks/verdicts.py``.

A verdict is a line of a figure's page that begins with "- **reproduced**", "- **not reproduced**" or "- **cannot be
tested here**". Pages are grouped by paper, which is what their names begin with. Below a paper's title stands what
``reasons.md`` says of the claims that did not come out, and then a table for each page, with a row for each claim and
the cases (click models, users, values of λ) in which it was judged so. Claims of an ordering whose interval contains 0
are counted apart: they are undecided, and not contradicted.
"""

import re
from pathlib import Path

from jaxrank.output.report import OPPOSITE, UNDECIDED, VERDICTS
from jaxrank.output.tables import markdown

PAPERS = {
    "bubblerank": "BubbleRank (Li et al., UAI 2019)",
    "batchrank": "BatchRank (Zoghi et al., ICML 2017)",
    "cascadehybrid": "CascadeHybrid (Li, Feng, de Rijke, 2019)",
    "pairrank": "PairRank (Jia et al., WWW 2021)",
}
# "- **word**: case: claim (number [interval]; why)." Some claims are about no single case.
TEXT = r"(?:[^()]|\([^()]*\))*"
VERDICT = re.compile(rf"- \*\*({'|'.join(VERDICTS)})\*\*: (?:({TEXT.replace('[^', '[^:')}?): )?(.*?) \(({TEXT})\)\.")
WHY = re.compile(f"; ({UNDECIDED}|{OPPOSITE})$")  # as the column and the interval say


def collect(folder: Path, reasons: str) -> str:
    """The page, from all pages in the folder and the text with the reasons, a section for each paper."""
    parts = [
        "# Verdicts",
        "What came out of the claims of the four papers, figure by figure. Each page has the command, the data, the "
        "scale and how intervals are made; this page is written by `python benchmarks/verdicts.py`.",
        "Every interval is one of 95 %, with no correction for the number of claims. Of the claims that are not "
        "reproduced, those whose interval contains 0 are undecided. The others have an interval on the other side or, "
        "where a claim is no ordering, are judged by the number that stands with them.",
    ]
    rows, sections = [], []
    why = dict(re.findall(r"^## (\w+)\n\n(.*?)\n*(?=^## |\Z)", reasons, re.MULTILINE | re.DOTALL))
    for paper, title in PAPERS.items():
        sections += [f"## {title}", f"What did not come out, and why:\n\n{why[title.partition(' ')[0]]}"]
        for page in sorted(folder.glob(f"{paper}-*.md")):
            text = page.read_text(encoding="utf-8")
            lines = [line for line in text.splitlines() if line.startswith("- **")]
            if lines:
                found = [parse(line) for line in lines]
                counts = [sum(word == each for word, *_ in found) for each in VERDICTS]
                counts.insert(2, sum(UNDECIDED in line for line in lines))
                rows.append([f"[{page.stem}]({page.name})", *map(str, counts)])
                command = next((line for line in text.splitlines() if line.startswith("`jaxrank")), "")
                sections += [f"### {page.stem}", command, _by_claim(found)]
    header = ["page", *VERDICTS[:2], "of these undecided", *VERDICTS[2:]]
    return "\n\n".join([*parts, markdown(header, rows), *sections]) + "\n"


def parse(line: str) -> tuple[str, str, str, str]:
    """The word, the case, the claim and the evidence of a verdict."""
    match = VERDICT.fullmatch(line)
    if not match:
        raise ValueError(f'a verdict must be "- **word**: case: claim (evidence)."; got {line!r}')
    word, case, claim, evidence = match.groups(default="")
    return word, case, claim, WHY.sub("", evidence)


def _by_claim(found: list[tuple[str, str, str, str]]) -> str:
    """A table of claims, with a column for each word that there is."""
    cells: dict[str, dict[str, list[str]]] = {}
    for word, case, claim, evidence in found:
        cells.setdefault(claim, {}).setdefault(word, []).append(f"{case}: {evidence}" if case else evidence)
    words = [word for word in VERDICTS if any(word in of_claim for of_claim in cells.values())]
    rows = [[claim, *("<br>".join(of_claim.get(w, ["–"])) for w in words)] for claim, of_claim in cells.items()]
    return markdown(["claim", *words], rows)


if __name__ == "__main__":
    here = Path(__file__).parent
    found = collect(here / "results", (here / "reasons.md").read_text(encoding="utf-8"))
    (here / "results" / "verdicts.md").write_text(found, encoding="utf-8")
