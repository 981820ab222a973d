// Calls of the API. A report has the answers in the page instead, and calls nothing.
"use strict";

Elmokit.recorded = (() => {
  const script = document.getElementById("recorded");
  return script ? JSON.parse(script.textContent) : null;
})();

Elmokit.cache = new Map();

Elmokit.call = async function (path, body) {
  if (Elmokit.recorded) return Elmokit.lookUp(path, body);
  const key = body === undefined ? path : `${path} ${JSON.stringify(body)}`;
  if (Elmokit.cache.has(key)) return Elmokit.cache.get(key);
  const answer = await Elmokit.fetchJSON(path, body);
  if (Elmokit.cache.size > 200) Elmokit.cache.delete(Elmokit.cache.keys().next().value);
  Elmokit.cache.set(key, answer);
  return answer;
};

// The answer of a report: by sentence for substitutes and layers, by word for senses.
Elmokit.lookUp = function (path, body) {
  const { info, sentences, senses } = Elmokit.recorded;
  if (path === "/info") return info;
  const found = path === "/senses" ? senses[body.word] : body.inputs.map((text) => sentences[text] && sentences[text][path]);
  if (!found || (Array.isArray(found) && found.includes(undefined))) throw new Error("This report does not hold that. Start elmokit serve for other texts.");
  return found;
};

Elmokit.fetchJSON = async function (path, body) {
  const headers = { Accept: "application/json" };
  const apiKey = sessionStorage.getItem("elmokit-key");
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(`.${path}`, { method: body === undefined ? "GET" : "POST", headers, body: body && JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer. Is elmokit serve still running?");
  }
  if (response.status === 401) {
    await Elmokit.askForKey();
    return Elmokit.fetchJSON(path, body);
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(typeof answer.error === "string" ? answer.error : answer.error.message);
  return answer;
};

// Show a form for the API key, and wait for it.
Elmokit.askForKey = () => new Promise((resolve) => {
  const input = Elmokit.el("input", { type: "password", id: "key", autocomplete: "off", required: true });
  const form = Elmokit.el("form.card.ask", {
    onsubmit: (event) => {
      event.preventDefault();
      sessionStorage.setItem("elmokit-key", input.value);
      form.remove();
      resolve();
    },
  }, Elmokit.el("div", {}, Elmokit.el("label", { for: "key" }, "This server needs an API key"), input), Elmokit.el("div", {}, Elmokit.el("button.go", {}, "Continue")));
  document.getElementById("main").prepend(form);
  input.focus();
});

Elmokit.decodeFloats = function (text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  return new Float32Array(bytes.buffer);
};

// Run an async job for a part of the page: dim it while it waits, and show an error in it.
// Of several jobs for one part only the last one may draw.
Elmokit.fill = async function (part, job) {
  const turn = (part.turn = (part.turn || 0) + 1);
  part.classList.add("waiting");
  part.setAttribute("aria-busy", "true");
  try {
    const draw = await job();
    if (part.turn === turn && draw) draw();
  } catch (error) {
    if (part.turn === turn) part.replaceChildren(Elmokit.el("p.notice.bad", { role: "alert" }, error.message));
  } finally {
    if (part.turn === turn) {
      part.classList.remove("waiting");
      part.removeAttribute("aria-busy");
    }
  }
};
