// Elements, tokens, code snippets and addresses: what all views share.
"use strict";

const Elmokit = { views: {} };

Elmokit.LAYER_NAMES = ["Token layer", "First LSTM", "Second LSTM", "Third LSTM", "Fourth LSTM"];
Elmokit.layerName = (layer) => Elmokit.LAYER_NAMES[layer] || `LSTM ${layer}`;
Elmokit.layerInText = (layer) => Elmokit.layerName(layer).replace(/^[A-Z](?=[a-z])/, (first) => first.toLowerCase());

// el("p.hint", {title: "…"}, "text", otherElement): an element with classes, attributes or listeners, and children.
Elmokit.el = function (kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  Elmokit.setAttributes(made, attributes);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
};

Elmokit.svg = function (kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  Elmokit.setAttributes(made, attributes);
  made.append(...children.flat());
  return made;
};

Elmokit.setAttributes = function (element, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
};

// Set the strength of a heat cell, 0 to 1. Where black and white text are equally readable, the text changes color:
// at 0.795 on white paper, at 0.585 on dark.
Elmokit.heat = function (element, strength) {
  const bounded = Math.max(0, Math.min(1, strength));
  element.style.setProperty("--a", bounded.toFixed(3));
  element.classList.toggle("light-text", bounded > 0.795);
  element.classList.toggle("dark-text", bounded > 0.585);
};

Elmokit.percent = (share) => (share >= 0.0995 ? `${Math.round(100 * share)}%` : share >= 0.001 ? `${(100 * share).toFixed(1)}%` : "<0.1%");
Elmokit.color = (index) => `var(--c${index % 7})`;
Elmokit.announce = (text) => { document.getElementById("live").textContent = text; };

// Radio buttons that look like one control.
Elmokit.choice = function (legend, name, options, chosen, onchange) {
  return Elmokit.el("fieldset.choice", {}, Elmokit.el("legend", {}, legend),
    Object.entries(options).map(([value, text]) => Elmokit.el("label", {},
      Elmokit.el("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onchange(value) }),
      Elmokit.el("span", {}, text))));
};

Elmokit.layerSlider = function (numLayers, layer, onchange) {
  const output = Elmokit.el("output", {}, Elmokit.layerName(layer));
  const input = Elmokit.el("input", {
    type: "range", id: "layer", min: 0, max: numLayers - 1, step: 1, value: layer, "aria-valuetext": Elmokit.layerName(layer),
    oninput: () => {
      const chosen = Number(input.value);
      output.textContent = Elmokit.layerName(chosen);
      input.setAttribute("aria-valuetext", Elmokit.layerName(chosen));
      onchange(chosen);
    },
  });
  return Elmokit.el("div.slider", {}, Elmokit.el("label", { for: "layer" }, "Layer"), input, output);
};

// One context with its word in bold, cut to a window around the word.
Elmokit.context = function (occurrence, width = 9) {
  const { tokens, position } = occurrence;
  const hidden = (number) => (number > 2 ? number : 0); // two words take no more room than the dots
  const first = hidden(position - width), last = tokens.length - hidden(tokens.length - position - width - 1);
  const before = Elmokit.joinTokens([...tokens.slice(first, position), "\u0000"]), after = Elmokit.joinTokens(["\u0000", ...tokens.slice(position + 1, last)]);
  return [first > 0 ? "… " : "", before.replace("\u0000", ""), Elmokit.el("b", {}, tokens[position]), after.replace("\u0000", ""), last < tokens.length ? " …" : ""];
};

Elmokit.joinTokens = (tokens) => tokens.join(" ").replace(/ ([.,;:!?)\]’”%]|'s|n't)/g, "$1").replace(/([([“]) /g, "$1");
Elmokit.isClosing = (token) => /^([.,;:!?)\]’”%]|'s|n't)/.test(token);

// A field for a text; in a report, a list of the texts that it holds.
Elmokit.textField = function (id, rows, options, onchoose) {
  if (!Elmokit.recorded) return Elmokit.el("textarea", { id, rows, spellcheck: false });
  return Elmokit.el("select", { id, onchange: onchoose }, options.map((text) => Elmokit.el("option", { value: text }, text || "(none)")));
};

// "Copy as Python / curl", filled by `update(python, path, body)`.
Elmokit.codePanel = function () {
  const python = Elmokit.el("pre", { tabindex: 0, "aria-label": "Python" }), curl = Elmokit.el("pre", { tabindex: 0, "aria-label": "curl" });
  const copyButton = (text, source) => Elmokit.el("button.quiet", {
    type: "button",
    onclick: async (event) => {
      await navigator.clipboard.writeText(typeof source === "function" ? source() : source.textContent);
      event.target.textContent = "Copied";
      Elmokit.announce("Copied");
      setTimeout(() => { event.target.textContent = text; }, 1500);
    },
  }, text);
  const panel = Elmokit.el("details.code", {}, Elmokit.el("summary", {}, "Copy as Python or curl, or share this view"), python, curl,
    Elmokit.el("div.tools", {}, copyButton("Copy as Python", python), copyButton("Copy as curl", curl),
      copyButton("Copy link", () => location.href)));
  panel.update = (code, path, body) => {
    python.textContent = code;
    const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
    curl.textContent = `curl ${location.protocol === "file:" ? "http://localhost:8080" : location.origin}${path} -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
  };
  return panel;
};

// A value as Python writes it; a long list has one item per line.
Elmokit.python = function (value) {
  if (!Array.isArray(value)) return JSON.stringify(value);
  const items = value.map(Elmokit.python), line = `[${items.join(", ")}]`;
  return line.length < 90 ? line : `[\n${items.map((one) => `    ${one},\n`).join("")}]`;
};

// The argument of from_pretrained; the bundled model needs none.
Elmokit.pythonModel = () => (Elmokit.info.model_id === "en-small" ? "" : Elmokit.python(Elmokit.info.model_id));
