"""Collects the verdicts of all results into benchmarks/results/verdicts.md: ``python benchmarks/verdicts.py``.

A verdict is a line of a figure's page that begins with "- **reproduced**", "- **not reproduced**" or "- **cannot be
tested here**". Pages are grouped by paper, which is what their names begin with. Below a paper's title stands what
``reasons.md`` says of the claims that did not come out.
"""

import re
from pathlib import Path

PAPERS = {
    "bubblerank": "BubbleRank (Li et al., UAI 2019)",
    "batchrank": "BatchRank (Zoghi et al., ICML 2017)",
    "cascadehybrid": "CascadeHybrid (Li, Feng, de Rijke, 2019)",
    "pairrank": "PairRank (Jia et al., WWW 2021)",
}
WORDS = ("reproduced", "not reproduced", "cannot be tested here")
VERDICT = re.compile(rf"- \*\*({'|'.join(WORDS)})\*\*: .*")


def collect(folder: Path, reasons: str) -> str:
    """The page, from all pages in the folder and the text with the reasons, a section for each paper."""
    parts = [
        "# Verdicts",
        "What came out of the claims of the four papers, figure by figure. Each page has the command, the data, the "
        "scale and how intervals are made; this page is written by `python benchmarks/verdicts.py`.",
    ]
    rows, lists = [], []
    sections = dict(re.findall(r"^## (\w+)\n\n(.*?)\n*(?=^## |\Z)", reasons, re.MULTILINE | re.DOTALL))
    for paper, title in PAPERS.items():
        lists += [f"## {title}", f"What did not come out, and why:\n\n{sections[title.partition(' ')[0]]}"]
        for page in sorted(folder.glob(f"{paper}-*.md")):
            text = page.read_text()
            found = [match for match in map(VERDICT.fullmatch, text.splitlines()) if match]
            counts = [sum(match[1] == word for match in found) for word in WORDS]
            if found:
                rows.append(f"| [{page.stem}]({page.name}) | {' | '.join(map(str, counts))} |")
                command = next((line for line in text.splitlines() if line.startswith("`jaxrank")), "")
                lists.append(f"### {page.stem}\n\n{command}\n\n" + "\n".join(match[0] for match in found))
    table = "\n".join([f"| page | {' | '.join(WORDS)} |", "|---|---:|---:|---:|", *rows])
    return "\n\n".join([*parts, table, *lists]) + "\n"


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "results" / "verdicts.md").write_text(collect(here / "results", (here / "reasons.md").read_text()))
