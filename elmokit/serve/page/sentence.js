// Sentence: tokens colored by surprise, and the best substitutes of a token.
"use strict";

Elmokit.views.sentence = {
  title: "Sentence",
  intro: "How surprising is each word, read from the left, from the right, and from both sides? Choose a word to see what could stand in its place.",
  defaults: { text: "The old man sat on the bank of the river.", side: "both", token: "" },
  MOST_BITS: 16,
  SIDES: { forward: "From the left", backward: "From the right", both: "From both" },

  mount(root, params, set) {
    const { el } = Elmokit;
    const text = Elmokit.textField("text", 2, Object.keys((Elmokit.recorded || {}).sentences || {}), () => set({ text: text.value, token: "" }));
    const form = el("form.ask", { onsubmit: (event) => { event.preventDefault(); set({ text: text.value, token: "" }); } },
      el("div", {}, el("label", { for: "text" }, "Sentence"), text),
      el("div.row", {}, Elmokit.recorded ? null : el("button.go", {}, "Read"),
        Elmokit.choice("Surprise", "side", this.SIDES, params.side, (side) => set({ side }))));
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); }
    });
    const result = el("div"), code = Elmokit.codePanel();
    root.append(form, result, code);
    return (now) => {
      text.value = now.text;
      if (!now.text.trim()) { result.replaceChildren(el("p.notice", {}, "Type a sentence to begin.")); return; }
      const body = { inputs: [now.text], top_k: 10 };
      code.update(`from elmokit import Scorer\n\nscorer = Scorer.from_pretrained(${Elmokit.pythonModel()})\n[places] = scorer.predict([${Elmokit.python(now.text)}], top_k=10)\nfor place in places:\n    print(place.token, place.both_logprob, [candidate.word for candidate in place.both])`, "/substitutes", body);
      Elmokit.fill(result, async () => {
        const [sentence] = await Elmokit.call("/substitutes", body);
        return () => result.replaceChildren(...this.draw(sentence, now, set));
      });
    };
  },

  draw(sentence, now, set) {
    const { el } = Elmokit;
    const chosen = now.token === "" ? -1 : Number(now.token);
    const bits = (place, side) => -place[`${side}_logprob`] / Math.LN2;
    const tokens = sentence.places.map((place, index) => {
      const surprise = bits(place, now.side);
      const token = el(`button.token${place.unknown ? ".unknown" : ""}`, {
        type: "button", "aria-pressed": String(index === chosen),
        onclick: () => set({ token: index === chosen ? "" : String(index) }),
      }, place.token, el("small", {}, surprise.toFixed(1)), el("span.unseen", {}, ` bits${place.unknown ? ", out of vocabulary" : ""}`));
      Elmokit.heat(token, (0.85 * surprise) / this.MOST_BITS);
      return el("li", {}, token);
    });
    const list = el("ul.tokens", { "aria-label": "Tokens" }, tokens);
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const buttons = [...list.querySelectorAll("button")];
      if (step) buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length].focus();
    });
    const mean = (side) => sentence.places.reduce((sum, place) => sum + bits(place, side), 0) / sentence.places.length;
    const parts = [el("div.card", {}, list, el("div.scale", {}, "expected", el("i", { "aria-hidden": true }), `${this.MOST_BITS} bits or more`),
      el("p.facts", {}, Object.entries(this.SIDES).map(([side, name]) => el("span", {}, `${name} `, el("b", {}, `${mean(side).toFixed(1)} bits`), " per word"))))];
    if (sentence.places[chosen]) parts.push(this.drawPlace(sentence, chosen, set));
    else parts.push(el("p.hint", {}, "Choose a word to see its substitutes. Dotted words are not in the model's vocabulary and are scored as unknown."));
    return parts;
  },

  drawPlace(sentence, index, set) {
    const { el } = Elmokit;
    const place = sentence.places[index];
    const replaced = (word) => {
      const tokens = [...sentence.tokens];
      tokens[index] = word;
      return Elmokit.joinTokens(tokens);
    };
    const column = (side) => el("div", {}, el("h3", {}, this.SIDES[side]),
      el("ol.ranking", {}, place[side].map((one) => {
        const share = Math.exp(one.logprob);
        const kind = one.word === place.token ? ".own" : "";
        const content = [el("span", {}, one.word), el("span.number", {}, Elmokit.percent(share))];
        const line = Elmokit.recorded ? el(`span.plain${kind}`, { "--w": `${100 * share}%` }, content)
          : el(`button${kind}`, { type: "button", "--w": `${100 * share}%`, title: `Put “${one.word}” into the sentence`, onclick: () => set({ text: replaced(one.word), token: String(index) }) }, content);
        return el("li", {}, line);
      })),
      el("p.hint", {}, `“${place.token}” itself: ${Elmokit.percent(Math.exp(place[`${side}_logprob`]))}`));
    return el("section.card", { "aria-label": `Substitutes of ${place.token}` }, el("h2", {}, `In the place of “${place.token}”`),
      el("div.columns", {}, ["forward", "backward", "both"].map(column)));
  },
};
