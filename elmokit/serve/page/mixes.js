// Layer weights that task models have trained, as a table: Figure 2 of the paper.
"use strict";

// A column per task model and place of ELMo, the top layer first. Weights below 1/3 are hatched, above 2/3 speckled.
Elmokit.drawMixes = function (tasks, onchoose) {
  const { el } = Elmokit;
  const columns = tasks.flatMap((task) => task.mixes.map((mix) => ({ name: task.name, place: mix.place, weights: mix.weights, gamma: mix.gamma })));
  if (!columns.length) return null;
  const numLayers = Math.max(...columns.map((one) => one.weights.length));
  const head = (one) => {
    const label = [el("b", {}, one.name), el("small", {}, one.place)];
    return el("th", { scope: "col" }, onchoose ? el("button.quiet", { type: "button", title: "Set the sliders to these weights", onclick: () => onchoose(one.weights) }, label) : label);
  };
  const cell = (one, layer) => {
    const weight = one.weights[layer];
    if (weight === undefined) return el("td");
    const made = el(`td${weight < 1 / 3 ? ".low" : weight > 2 / 3 ? ".high" : ""}`, {}, el("span", {}, Elmokit.percent(weight)));
    Elmokit.heat(made, 0.75 * weight);
    return made;
  };
  const rows = [...Array(numLayers).keys()].reverse().map((layer) => el("tr", {}, el("th", { scope: "row" }, Elmokit.layerName(layer)), columns.map((one) => cell(one, layer))));
  const gammas = el("tr", {}, el("th", { scope: "row" }, "Scale γ"), columns.map((one) => el("td.plain", {}, one.gamma.toFixed(2))));
  return el("section.card", {}, el("h2", {}, tasks.length > 1 ? "Layer weights of the task models" : `Layer weights of ${tasks[0].name}`),
    el("div.scroll", { tabindex: 0, role: "region", "aria-label": "Layer weights" }, el("table.mixes", {}, el("caption.unseen", {}, "Weight of each layer per task model"), el("thead", {}, el("tr", {}, el("td"), columns.map(head))), el("tbody", {}, rows, gammas))),
    el("p.hint", {}, "Hatched below 1/3, speckled above 2/3, as in Figure 2 of the paper."));
};
