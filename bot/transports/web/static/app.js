/* The web chat. The server sends fragments of HTML, each with an id and a revision; this file
   puts them in place, keeps what is typed, and sends what is said until it is known to be stored. */

const $ = (id) => document.getElementById(id);
const boot = JSON.parse($("boot").textContent);
const say = (key, facts = {}) => boot.words[key].replace(/\{(\w+)\}/g, (_, name) => facts[name] ?? "");
/* The browser's own way with dates where it speaks our language. */
const locale = navigator.languages.find((tag) => tag.startsWith(boot.language)) ?? boot.language;
const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const make = (tag, props = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children);
  return node;
};

/* ---- what survives a reload ---------------------------------------------------------------- */

const DRAFT = "shiftboss.draft";
const OUT = "shiftboss.out.";

const keep = (store, key, value) => {
  try { value === null ? store.removeItem(key) : store.setItem(key, value); } catch { /* full or forbidden: still in memory */ }
};
const kept = (store, key) => { try { return store.getItem(key); } catch { return null; } };

/* Messages not known to be stored, by id. Another tab may send them too: the id makes them one. */
const outgoing = new Map();

function loadOutgoing() {
  try {
    for (const key of Object.keys(localStorage).filter((key) => key.startsWith(OUT))) {
      const message = JSON.parse(localStorage.getItem(key));
      outgoing.set(message.id, message);
    }
  } catch { /* unreadable: nothing to resend */ }
  for (const message of [...outgoing.values()].sort((a, b) => (a.at < b.at ? -1 : 1))) showOutgoing(message);
}

/* ---- the socket ---------------------------------------------------------------------------- */

let socket = null;
let failures = 0;
let retry = 0;
const presses = new Map();

const isOpen = () => socket !== null && socket.readyState === WebSocket.OPEN;
const transmit = (frame) => { if (isOpen()) socket.send(JSON.stringify(frame)); };

function connect() {
  clearTimeout(retry);
  let opened = false;
  /* A handshake's accept-language may differ from the page's; the page says which it shows. */
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const opening = new WebSocket(`${scheme}://${location.host}/ws?language=${boot.language}`);
  socket = opening;
  opening.onopen = () => {
    opened = true;
    failures = 0;
    showStatus("online");
    $("older").disabled = false;
    for (const message of outgoing.values()) { message.refused = false; transmitMessage(message); }
    for (const { frame } of presses.values()) transmit(frame);
  };
  opening.onmessage = (event) => receive(JSON.parse(event.data));
  opening.onclose = () => {
    if (socket !== opening) return;
    showStatus("reconnecting");
    outgoing.forEach(showOutgoing);
    if (!opened) lookForLostKey();
    const wait = Math.min(8000, 300 * 2 ** failures++) * (0.7 + 0.6 * Math.random());
    retry = setTimeout(connect, wait);
  };
}

function connectNow() {
  if (socket === null || socket.readyState === WebSocket.CLOSED) { failures = 0; connect(); }
}

/* A server that answers but refuses the socket wants another key: its own page says so. */
async function lookForLostKey() {
  try {
    const answer = await fetch("/", { cache: "no-store" });
    if (answer.status === 401) location.reload();
  } catch { /* not there yet */ }
}

function showStatus(state) {
  $("status").dataset.state = state;
  $("status").firstElementChild.textContent = say(state);
}

function receive(frame) {
  switch (frame.type) {
    case "past": return showPast(frame);
    case "older": return showOlder(frame);
    case "item": return showItem(frame);
    case "partial": return showPartial(frame);
    case "stored": return stored(frame.id);
    case "refused": return refused(frame);
    case "toast": return answered(frame);
    case "working": return showWorking();
    case "alerts": return showAlerts(frame.lines);
  }
}

/* ---- the conversation ---------------------------------------------------------------------- */

const scroller = $("scroll");
const items = $("items");
let pinned = true;
let unread = 0;

/* Change the page, and stay at its end if that is where the reader was. */
function changing(change) {
  const wasPinned = pinned;
  change();
  $("tries").hidden = items.querySelector(".said") !== null;
  if (wasPinned) toEnd();
  else $("latest").hidden = false;
}

function toEnd() {
  scroller.scrollTop = scroller.scrollHeight;
  pinned = true;
  $("latest").hidden = true;
}

let hasPast = false;

function showPast({ items: list, before }) {
  changing(() => {
    /* After a lost connection what stands here goes on without a gap, or begins anew. */
    if (!hasPast || !list.some((item) => $(item.id))) {
      items.querySelectorAll(".item:not(.unsent)").forEach((node) => { if (node.dataset.at < list[0]?.at) node.remove(); });
      offerOlder(before);
      hasPast = true;
    }
    arrange(list);
  });
}

function showOlder({ items: list, before }) {
  const below = scroller.scrollHeight - scroller.scrollTop;
  arrange(list);
  offerOlder(before);
  scroller.scrollTop = scroller.scrollHeight - below;
}

function offerOlder(before) {
  const older = $("older");
  if (!before && document.activeElement === older) scroller.focus({ preventScroll: true });
  older.hidden = !before;
  older.disabled = false;
  older.dataset.before = before ?? "";
}

$("older").onclick = () => {
  $("older").disabled = true;
  transmit({ type: "older", before: $("older").dataset.before });
};

function arrange(list) {
  list.forEach(putItem);
  const past = list.map((item) => $(item.id));
  const rest = [...items.children].filter((node) => !past.includes(node));
  const first = list[0]?.at ?? "";
  const order = [...rest.filter((node) => node.dataset.at < first), ...past, ...rest.filter((node) => node.dataset.at >= first)];
  if (order.some((node, index) => items.children[index] !== node)) items.append(...order);
  order.forEach(markDay);
}

function showItem(frame) {
  changing(() => {
    const fresh = $(frame.id) === null;
    const wasPartial = !fresh && "partial" in $(frame.id).dataset;
    const node = putItem(frame);
    markDay(node);
    if (!node.classList.contains("said")) {
      $("working").hidden = true;
      if (fresh || wasPartial) announce(node);
      if (fresh && document.hidden) showUnread(unread + 1);
    }
  });
}

function showPartial(frame) {
  changing(() => {
    const node = $(frame.id) ?? newItem(frame.id, frame.at, "told");
    if (Number(node.dataset.revision) > frame.revision) return;
    node.dataset.revision = frame.revision;
    node.dataset.partial = "";
    node.setAttribute("aria-busy", "true");
    const prose = node.querySelector(":scope > .making");
    if (prose) prose.innerHTML = frame.html;
    else fill(node, `<div class="making prose" dir="auto">${frame.html}</div>`);
    $("working").hidden = true;
  });
}

/* Put an item in its place; an older revision never replaces a newer one. */
function putItem(frame) {
  const isSaid = frame.text !== undefined;
  const node = $(frame.id) ?? newItem(frame.id, frame.at, isSaid ? "said" : "told");
  const partial = "partial" in node.dataset;
  if (Number(node.dataset.revision) > frame.revision) return node;
  if (Number(node.dataset.revision) === frame.revision && !partial && node.fragment === frame.html) return node;
  node.dataset.revision = frame.revision;
  delete node.dataset.partial;
  node.removeAttribute("aria-busy");
  node.fragment = frame.html;
  node.dataset.at = isSaid ? frame.at : node.dataset.at;
  if (isSaid) fillSaid(node, frame.text, frame.html);
  else fill(node, frame.html, frame.reply_to);
  return node;
}

function newItem(id, at, kind) {
  const node = make("li", { id, className: `item ${kind}` });
  node.dataset.revision = -1;
  node.dataset.at = at;
  items.append(node);
  return node;
}

/* New content in an item, with what the reader had unfolded, filled in or focused kept. */
function fill(node, html, replyTo = "") {
  const open = [...node.querySelectorAll("details")].map((details) => details.open);
  const values = new Map([...node.querySelectorAll("[name]")].map((field) => [fieldKey(field), field.value]));
  const focused = node.contains(document.activeElement) ? focusKey(document.activeElement) : null;
  node.innerHTML = html;
  node.querySelectorAll("details").forEach((details, index) => { details.open = open[index] ?? false; });
  node.querySelectorAll("[name]").forEach((field) => { if (values.get(fieldKey(field))) field.value = values.get(fieldKey(field)); });
  if (focused) [...node.querySelectorAll("button,select,input,textarea,summary,a")].find((found) => focusKey(found) === focused)?.focus({ preventScroll: true });
  node.querySelectorAll("pre").forEach(addCopy);
  if (replyTo) addQuote(node, replyTo);
  node.append(clock(node));
}

/* Where a drawing is too wide, it is made smaller as far as it can be read, and seen from its middle. */
const READABLE = 0.7;

items.addEventListener("load", ({ target: drawing }) => {
  const frame = drawing.matches?.('.image img[src*=".svg"]') && drawing.parentElement;
  if (!frame) return;
  const natural = drawing.naturalWidth;
  frame.style.setProperty("--fit", `${Math.max(Math.min(natural, frame.parentElement.clientWidth), natural * READABLE)}px`);
  frame.scrollLeft = (frame.scrollWidth - frame.clientWidth) / 2;
}, true);

const fieldKey = (field) => `${field.closest("[data-pick]")?.dataset.pick ?? field.form?.dataset.token}/${field.name}`;
const focusKey = (node) => node.dataset.token ?? node.dataset.picks ?? (node.name ? fieldKey(node) : `${node.tagName}:${node.textContent}`);

const UNPRINTABLE = /[\x00-\x08\x0b-\x1f\x7f]/g;

function fillSaid(node, text, html) {
  node.replaceChildren(make("span", { className: "sr", textContent: `${say("you")}: ` }));
  if (text) node.append(make("div", { className: "bubble", dir: "auto", textContent: text.replace(UNPRINTABLE, "") }));
  if (html) {
    const attached = make("div", { className: "attached" });
    attached.innerHTML = html;
    node.append(attached);
  }
  node.append(clock(node));
}

function clock(node) {
  const at = new Date(node.dataset.at);
  return make("time", { dateTime: node.dataset.at, textContent: at.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" }), title: at.toLocaleString(locale) });
}

function markDay(node) {
  const day = (at) => new Date(at).toDateString();
  const before = node.previousElementSibling;
  if (before && day(before.dataset.at) === day(node.dataset.at)) { delete node.dataset.day; return; }
  const isToday = day(node.dataset.at) === new Date().toDateString();
  if (!before && isToday) { delete node.dataset.day; return; }
  node.dataset.day = new Date(node.dataset.at).toLocaleDateString(locale, { weekday: "long", month: "long", day: "numeric" });
}

/* An answer that neither stands right under its question or card nor names it says what it answers. */
function addQuote(node, replyTo) {
  const asked = $(replyTo);
  if (!asked || node.previousElementSibling === asked) return;
  const whole = (asked.querySelector(".bubble, h2")?.textContent ?? "").trim();
  const text = whole.length > 80 ? `${whole.slice(0, 79)}…` : whole;
  const named = whole.replace(/^\/\S+\s+/, "").replace(/^-p\s+\S+\s+/, "").slice(0, 60);
  if (text && !node.textContent.includes(named)) node.prepend(make("a", { className: "quote", href: `#${replyTo}`, dir: "auto", textContent: say("replying_to", { text }) }));
}

function addCopy(pre) {
  if (!navigator.clipboard) return;
  const button = make("button", { type: "button", className: "copy", textContent: say("copy") });
  button.onclick = async () => {
    await navigator.clipboard.writeText(pre.querySelector("code")?.textContent ?? pre.textContent);
    button.textContent = say("copied");
    setTimeout(() => { button.textContent = say("copy"); }, 1500);
  };
  const frame = make("div", { className: "pre" });
  pre.replaceWith(frame);
  frame.append(pre, button);
}

/* New messages are read out once and briefly; every tick of a card would be too much. */
function announce(node) {
  $("announce").textContent = (node.querySelector(".card-title, .prose")?.textContent ?? "").trim().slice(0, 300);
}

let workingUntil = 0;
function showWorking() {
  changing(() => { $("working").hidden = false; });
  clearTimeout(workingUntil);
  workingUntil = setTimeout(() => { $("working").hidden = true; }, 8000);
}

function showAlerts(lines) {
  $("alerts").hidden = lines.length === 0;
  $("alerts").replaceChildren(...lines.map((line) => make("p", { dir: "auto", textContent: line })));
}

function showUnread(count) {
  unread = count;
  document.title = count ? `(${count}) Shiftboss` : "Shiftboss";
}

/* Only the reader's own way up lets go of the end: growing content does not. */
let lastTop = 0;
scroller.addEventListener("scroll", () => {
  const near = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  if (near || scroller.scrollTop < lastTop) pinned = near;
  lastTop = scroller.scrollTop;
  if (pinned) $("latest").hidden = true;
}, { passive: true });
const staying = new ResizeObserver(() => { if (pinned) toEnd(); });
staying.observe(scroller);
staying.observe(items);
$("latest").onclick = () => { toEnd(); text.focus(); };

/* ---- saying something ---------------------------------------------------------------------- */

const text = $("text");
let attached = [];

function grow() {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight, innerHeight * 0.4)}px`;
  $("send").disabled = !text.value.trim() && attached.length === 0;
}

function setText(value) {
  text.value = value;
  keep(sessionStorage, DRAFT, value || null);
  grow();
  showCommands();
}

async function send() {
  const words = text.value.toWellFormed?.() ?? text.value;
  if (!words.trim() && attached.length === 0) return;
  if (words.length > boot.limits.text) return toast(say("too_long", { limit: boot.limits.text }), false);
  const files = await Promise.all(attached.map((file) => file.uploading));
  if (files.includes(null)) return;
  attached = [];
  showFiles();
  setText("");
  sendWords(words.trim(), files);
}

function sendWords(words, files = []) {
  const message = { id: newId(), text: words, files: files.map((file) => file.id), names: files.map((file) => file.name), at: new Date().toISOString() };
  outgoing.set(message.id, message);
  keep(localStorage, OUT + message.id, JSON.stringify(message));
  pinned = true;
  showOutgoing(message);
  transmitMessage(message);
}

const transmitMessage = ({ id, text, files }) => transmit({ type: "say", id, text, files });

function showOutgoing(message) {
  changing(() => {
    const id = `said-${message.id}`;
    const node = $(id) ?? newItem(id, message.at, "said");
    if (Number(node.dataset.revision) >= 0) return;
    fillSaid(node, [message.text, ...message.names.map((name) => `📎 ${name}`)].filter(Boolean).join("\n"), "");
    node.classList.add("unsent");
    if (message.refused) {
      const again = make("button", { type: "button", className: "quiet", textContent: say("try_again") });
      again.onclick = () => { message.refused = false; showOutgoing(message); transmitMessage(message); };
      node.append(make("p", { className: "fate", textContent: message.refused }), again);
    } else {
      node.append(make("p", { className: "fate", textContent: say(isOpen() ? "sending" : "waiting_to_send") }));
    }
    markDay(node);
  });
}

function stored(id) {
  const chosen = LANGUAGE_COMMAND.exec(outgoing.get(id)?.text ?? "");
  outgoing.delete(id);
  keep(localStorage, OUT + id, null);
  const node = $(`said-${id}`);
  node?.classList.remove("unsent");
  node?.querySelectorAll(".fate, .fate + button").forEach((part) => part.remove());
  if (chosen) showIn(chosen[1].toLowerCase() === "en" ? "en" : "zh");
}

function refused({ id, text: why }) {
  const message = outgoing.get(id);
  if (!message) return;
  message.refused = why;
  showOutgoing(message);
}

text.addEventListener("input", () => setText(text.value));
text.addEventListener("keydown", (event) => {
  /* Enter that ends the composing of a Chinese word is not a send. */
  if (event.isComposing || event.keyCode === 229) return;
  if (commandKey(event)) { event.preventDefault(); return; }
  const phone = matchMedia("(pointer: coarse)").matches;
  if (event.key === "Enter" && !event.shiftKey && !phone) { event.preventDefault(); send(); }
});
$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); text.focus(); });
document.querySelectorAll("[data-try]").forEach((button) => {
  button.onclick = () => { setText(button.dataset.try); text.focus(); };
});

/* ---- files --------------------------------------------------------------------------------- */

function attach(list) {
  for (const file of list) {
    if (attached.length >= boot.limits.files) break;
    if (file.size > boot.limits.bytes) { toast(say("too_large", { name: file.name, limit: boot.limits.bytes / 1048576 }), false); continue; }
    if (file.size === 0) { toast(say("empty_file", { name: file.name }), false); continue; }
    const entry = { name: file.name || "image.png", done: false };
    entry.uploading = upload(file, entry);
    attached.push(entry);
  }
  showFiles();
}

async function upload(file, entry) {
  try {
    const answer = await fetch(`/upload?name=${encodeURIComponent(entry.name)}`, { method: "POST", body: file });
    const facts = await answer.json();
    if (!answer.ok) throw new Error(facts.error);
    entry.done = true;
    showFiles();
    return facts;
  } catch (problem) {
    attached = attached.filter((other) => other !== entry);
    showFiles();
    toast(problem instanceof TypeError || problem instanceof SyntaxError ? say("upload_failed", { name: entry.name }) : problem.message, false);
    return null;
  }
}

function showFiles() {
  $("files").hidden = attached.length === 0;
  $("files").replaceChildren(...attached.map((entry) => {
    const remove = make("button", { type: "button", className: "remove", textContent: "×", ariaLabel: say("remove", { name: entry.name }) });
    remove.onclick = () => { attached = attached.filter((other) => other !== entry); showFiles(); text.focus(); };
    const chip = make("li", {}, make("bdi", { textContent: entry.name }), remove);
    chip.dataset.done = entry.done;
    return chip;
  }));
  grow();
}

$("attach").onclick = () => $("picker").click();
$("picker").onchange = () => { attach($("picker").files); $("picker").value = ""; text.focus(); };
text.addEventListener("paste", (event) => {
  const files = [...event.clipboardData.files];
  if (files.length) { event.preventDefault(); attach(files); }
});
const carriesFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragover", (event) => { if (carriesFiles(event)) { event.preventDefault(); $("drop").hidden = false; } });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  $("drop").hidden = true;
  attach(event.dataTransfer.files);
  text.focus();
});

/* ---- the command menu ---------------------------------------------------------------------- */

const commands = $("commands");
let chosen = 0;

function showCommands() {
  const typed = /^\/(\S*)$/.exec(text.value)?.[1]?.toLowerCase();
  const found = typed === undefined ? [] : boot.menu.filter(({ name }) => name.replace(/^\//, "").startsWith(typed));
  const complete = found.some(({ name }) => name.replace(/^\//, "") === typed);
  commands.hidden = found.length === 0 || complete;
  commands.replaceChildren(...found.map(({ name, help }, index) => {
    const row = make("li", { id: `command-${index}`, role: "option" }, make("b", { textContent: `/${name.replace(/^\//, "")}` }), make("span", { textContent: help }));
    row.onmousedown = (event) => { event.preventDefault(); takeCommand(index); };
    return row;
  }));
  choose(0);
}

function choose(index) {
  const rows = [...commands.children];
  chosen = rows.length ? (index + rows.length) % rows.length : 0;
  rows.forEach((row, at) => { row.ariaSelected = String(at === chosen); });
  if (commands.hidden) text.removeAttribute("aria-activedescendant");
  else {
    text.setAttribute("aria-activedescendant", `command-${chosen}`);
    rows[chosen].scrollIntoView({ block: "nearest" });
  }
}

function takeCommand(index) {
  setText(`${commands.children[index].firstChild.textContent} `);
  text.focus();
}

/* True if the key was for the menu. */
function commandKey(event) {
  if (commands.hidden || event.shiftKey) return false;
  switch (event.key) {
    case "ArrowDown": choose(chosen + 1); return true;
    case "ArrowUp": choose(chosen - 1); return true;
    case "Tab": case "Enter": takeCommand(chosen); return true;
    case "Escape": hideCommands(); return true;
    default: return false;
  }
}

function hideCommands() {
  commands.hidden = true;
  text.removeAttribute("aria-activedescendant");
}

text.addEventListener("blur", hideCommands);
text.addEventListener("focus", showCommands);

/* ---- buttons, choices and forms ------------------------------------------------------------ */

async function confirmed(title, detail, button) {
  const dialog = $("confirm");
  $("confirm-yes").textContent = button.textContent;
  $("confirm-yes").dataset.style = button.dataset.style === "danger" ? "danger-primary" : "primary";
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = detail;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return dialog.returnValue === "yes";
}

function press(node, token, value = "", form = {}, item = node.closest(".item")) {
  const frame = { type: "press", id: newId(), card: item.id, token, value, form };
  const held = [...item.querySelectorAll("button[data-token], button[data-picks], form button")].filter((button) => !button.disabled);
  held.forEach((button) => { button.disabled = true; });
  node.setAttribute("aria-busy", "true");
  const release = () => {
    held.forEach((button) => { button.disabled = false; });
    node.removeAttribute("aria-busy");
  };
  presses.set(frame.id, { frame, release });
  setTimeout(() => { if (presses.delete(frame.id)) release(); }, 20000);
  transmit(frame);
}

function answered({ id, text: words, good }) {
  presses.get(id)?.release();
  presses.delete(id);
  if (id === "older") $("older").disabled = false;
  /* A bare tick is for platforms that must show something: here the card itself changes. */
  if (words && words !== "✓") toast(words, good);
}

function toast(words, good = true) {
  const node = make("p", { className: "toast", dir: "auto", textContent: words });
  node.dataset.good = good;
  $("toasts").append(node);
  setTimeout(() => node.remove(), good ? 4000 : 8000);
}

items.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.token) {
    const { token, value, confirmTitle, confirmText } = button.dataset;
    const { id } = button.closest(".item");
    if (confirmTitle !== undefined && !(await confirmed(confirmTitle, confirmText, button))) return;
    /* The card may have been drawn anew while the question was open: the button, and the item. */
    const item = $(id);
    if (item) press(item.querySelector(`button[data-token="${token}"]`) ?? button, token, value, {}, item);
  } else if (button.dataset.picks) {
    const picked = button.closest("[data-pick]").querySelector("select");
    if (picked.value) press(button, button.dataset.picks, picked.value);
    else picked.focus();
  }
});
items.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  press(event.submitter ?? form.querySelector("button"), form.dataset.token, "", Object.fromEntries(new FormData(form)));
});

/* ---- language, and the start --------------------------------------------------------------- */

/* The page and what is written in it speak one language: choosing either chooses both. */
const LANGUAGE_COMMAND = /^\/(?:language|lang|语言)\s+(zh|en|中文)\s*$/i;

function showIn(language) {
  if (language === boot.language) return;
  document.cookie = `shiftboss_lang=${language}; path=/; max-age=31536000; samesite=lax`;
  location.reload();
}

$("language").onclick = () => {
  const other = boot.language === "zh" ? "en" : "zh";
  if (items.querySelector(".said")) sendWords(`/language ${other}`);
  else showIn(other);
};
addEventListener("online", connectNow);
document.addEventListener("visibilitychange", () => { if (!document.hidden) { showUnread(0); connectNow(); } });
setText(kept(sessionStorage, DRAFT) ?? "");
loadOutgoing();
connect();
