"use strict";
// Draws the charts of a page in its colours, light or dark, and again when they change.
(() => {
  if (window.jaxrankCharts) return;
  window.jaxrankCharts = true;
  const colours = () => {
    const page = getComputedStyle(document.body);
    return { "font.color": page.color, "hoverlabel.bgcolor": page.backgroundColor, "hoverlabel.font.color": page.color };
  };
  const recolour = () => document.querySelectorAll(".js-plotly-plot").forEach(chart => Plotly.relayout(chart, colours()));
  const draw = async () => {
    for (const place of document.querySelectorAll(".jaxrank-chart")) {
      const { data, layout } = JSON.parse(place.firstElementChild.textContent);
      place.firstElementChild.remove();
      await Plotly.newPlot(place, data, layout, { responsive: true, displaylogo: false });
      await Plotly.relayout(place, colours());
    }
    document.documentElement.dataset.ready = "yes";
  };
  document.addEventListener("DOMContentLoaded", draw);
  new MutationObserver(recolour).observe(document.documentElement, { attributes: true, subtree: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
})();
