// The page of the support example. All text that comes from elsewhere goes into the
// page as text, never as HTML.

const byId = (id) => document.getElementById(id);

// element makes an element with text, or with other elements, inside.
function element(name, props = {}, ...inside) {
  const e = Object.assign(document.createElement(name), props);
  e.append(...inside);
  return e;
}

// amount writes an amount of a unit; money comes in micro-dollars.
function amount(unit, n) {
  if (unit !== "money") return n.toLocaleString("en");
  return "$" + (n / 1e6).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 4, useGrouping: false });
}

// when is an instant for people, in their own zone; its attribute is exact.
function when(iso) {
  const at = new Date(iso);
  const text = at.toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
  return element("time", { dateTime: iso }, text);
}

// ---- chat

function say(className, ...inside) {
  const chat = byId("chat");
  chat.append(element("li", { className }, ...inside));
  chat.scrollTop = chat.scrollHeight; // and not the page, on which somebody may be reading
}

async function send(who, text) {
  say("own", element("b", {}, who + ": "), text);
  let response;
  try {
    response = await fetch("/chat", { method: "POST", headers: { "X-User-Id": who, "Content-Type": "text/plain" }, body: text });
    if (response.ok) {
      say("answer", element("b", {}, "support: "), (await response.text()).trim());
      return;
    }
  } catch {
    say("bad", "The server could not be reached.");
    return;
  }
  const problem = await response.json().catch(() => ({}));
  const inside = [element("b", {}, `${who} was refused (${response.status}). `), problem.detail ?? response.statusText];
  if (problem["violated-policies"]) inside.push(` Limit: ${problem["violated-policies"].join(", ")}.`);
  if (problem.resetsAt) inside.push(" Resets ", when(problem.resetsAt), ".");
  else if (problem.retryAfter) inside.push(` Try again in ${problem.retryAfter} s.`);
  say("bad", ...inside);
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  const text = form.message.value.trim();
  if (!text) return;
  form.message.value = "";
  send(form.who.value, text);
});

// ---- live state

const words = {
  concurrent_turns: "chats open at a time", turns: "messages", money: "", tokens: "tokens", calls: "model calls", credits: "credits",
};

// budget shows how a limit stands. Elements stay in place, for those who are reading.
const bars = new Map();
function budget(place, key, b) {
  let bar = bars.get(key);
  if (!bar) {
    const id = "bar-" + bars.size;
    const name = element("span", {}, b.limit + (b.window ? ` (${b.window})` : ""));
    bar = { text: element("span"), reset: element("p", { className: "dim" }), progress: element("progress", { id }) };
    bars.set(key, bar);
    const label = element("label", { htmlFor: id }, name, bar.text);
    place.append(element("div", { className: "budget" }, label, bar.progress, bar.reset));
  }
  const taken = Math.max(b.used + b.reserved, 0);
  bar.progress.max = Math.max(b.max, 1);
  bar.progress.value = Math.min(taken, b.max);
  bar.progress.classList.toggle("full", b.left === 0 || taken >= 0.8 * b.max);
  const held = b.reserved > 0 && b.window ? `, ${amount(b.unit, b.reserved)} of it held` : "";
  bar.text.textContent = `${amount(b.unit, taken)} of ${amount(b.unit, b.max)} ${words[b.unit] ?? b.unit}${held}`.trim();
  if (b.resetsAt !== bar.resetsAt) {
    bar.resetsAt = b.resetsAt;
    bar.reset.replaceChildren(...(b.resetsAt ? ["Resets ", when(b.resetsAt)] : []));
  }
}

const places = new Map();
function holder(h) {
  let place = places.get(h.name);
  if (!place) {
    const about = h.company ? ` of ${h.company}` + (h.plan ? `, plan ${h.plan}` : "") : " together";
    place = element("div", {}, element("h3", {}, h.name, element("span", { className: "dim" }, about)));
    if (places.size === 0) byId("budgets").replaceChildren();
    places.set(h.name, place);
    byId("budgets").append(place);
  }
  for (const b of h.budgets ?? []) budget(place, `${h.name}/${b.limit}/${b.unit}`, b);
}

const numbers = new Map();
function number(name, value) {
  let dd = numbers.get(name);
  if (!dd) {
    dd = element("dd");
    numbers.set(name, dd);
    byId("numbers").append(element("dt", {}, name), dd);
  }
  dd.textContent = value;
}

let lastEntry = 0;
function log(entries) {
  if (entries.length && entries.at(-1).id < lastEntry) lastEntry = 0; // the server has begun anew
  for (const e of entries) {
    if (e.id <= lastEntry) continue;
    lastEntry = e.id;
    const at = element("time", { dateTime: e.at }, new Date(e.at).toLocaleTimeString());
    byId("log").prepend(element("li", { className: e.kind }, at, " ", e.who ? element("b", {}, e.who + " ") : "", e.text));
  }
  while (byId("log").childElementCount > 100) byId("log").lastElementChild.remove();
}

function show(s) {
  s.people.forEach(holder);
  s.shared?.forEach(holder);
  number("Turns under way", s.turns.underWay);
  number("Turns answered", s.turns.answered);
  number("Denied", s.turns.denied);
  number("Failed", s.turns.failed);
  number("Model calls in flight", `${s.gate.inUse} of ${s.gate.slots}`);
  number("Model calls in line", s.gate.waiting);
  for (const l of s.gate.limits ?? []) number(`Room at the model: ${l.name}`, `${l.room.toLocaleString("en")} of ${l.max.toLocaleString("en")} a minute`);
  log(s.log);
}

const events = new EventSource("/events");
const link = byId("link");
events.addEventListener("open", () => (link.textContent = "Live."));
events.addEventListener("error", () => (link.textContent = "Connection lost; trying again."));
events.addEventListener("state", (event) => show(JSON.parse(event.data)));
