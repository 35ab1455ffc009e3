"""Mathematics as MathML, which browsers draw themselves: no script, no fonts, no network."""

from latex2mathml.converter import convert


def _inline(self, node):
    self.body.append(convert(node.astext()))
    raise _skip()


def _block(self, node):
    self.body.append(self.starttag(node, "div", CLASS="math"))
    self.body.append(convert(node.astext(), display="block"))
    self.body.append("</div>")
    raise _skip()


def _skip():
    from docutils.nodes import SkipNode

    return SkipNode()


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
