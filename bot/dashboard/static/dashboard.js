// The dashboard: pages keep up with what happens, and a few keys. Works without it too.
"use strict";

const main = document.getElementById("main");
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

// --- live: elements with data-part are replaced when something has happened

// Only while the page is seen: browsers allow six streams for all pages of one origin.
let stream = null;
let waiting = 0;
// The first stream begins with what happened since the page was made. For a later one the page is
// made again, as people, channels and checks have no events.
let after = main.dataset.after || "";
let isLate = !after;

function follow() {
  if (!("live" in main.dataset) || document.hidden || stream) return;
  const query = new URLSearchParams();
  if (main.dataset.live) query.set("task", main.dataset.live);
  if (after) query.set("after", after);
  stream = new EventSource("/api/v1/events?" + query);
  for (const kind of KINDS) stream.addEventListener(kind, refreshSoon);
  stream.addEventListener("open", () => {
    if (isLate) refreshSoon();
    isLate = true;
    after = "";
  });
}

const KINDS = [
  "created", "started", "planned", "step_started", "step_done", "step_failed", "paused", "resumed",
  "completed", "failed", "blocked", "cancelled", "reordered", "recovered", "waiting", "replanned",
  "injected", "message", "note",
];

function refreshSoon() {
  if (!waiting) waiting = setTimeout(refresh, 300);
}

async function refresh() {
  waiting = 0;
  let page;
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    page = new DOMParser().parseFromString(await answer.text(), "text/html");
  } catch {
    return; // The stream connects again, and the next event tries again.
  }
  for (const old of main.querySelectorAll("[data-part]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh || isBusy(old) || content(old) === content(fresh)) continue;
    const unfolded = [...old.querySelectorAll("details")].map((each) => each.open);
    fresh.querySelectorAll("details").forEach((each, place) => { each.open ||= Boolean(unfolded[place]); });
    if (old.open) fresh.open = true;
    const wasFolded = summary(old) !== null && summary(old) === document.activeElement;
    old.replaceWith(fresh);
    if (wasFolded) summary(fresh)?.focus({ preventScroll: true });
  }
}

// Without what differs each time that the page is made, and what somebody has unfolded.
function content(part) {
  return part.outerHTML.replaceAll(/ name="source" value="\w*"| open=""/g, "");
}

// What somebody is using is left alone.
function isBusy(part) {
  const typed = [...part.querySelectorAll("textarea, input:not([type=hidden])")];
  const chosen = [...part.querySelectorAll("select")].some((each) =>
    each.selectedIndex !== Math.max(0, [...each.options].findLastIndex((one) => one.defaultSelected)));
  const used = part.contains(document.activeElement) && summary(part) !== document.activeElement;
  return chosen || used || typed.some((each) => each.value !== each.defaultValue);
}

// Of a part that is itself folded: whoever has just opened it goes on seeing what is new in it.
function summary(part) {
  return part.matches("details") ? part.querySelector("summary") : null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    if (stream) stream.close();
    stream = null;
  } else if ("live" in main.dataset) {
    follow();
  }
});
follow();

// People, channels and checks have no events of tasks.
setInterval(() => {
  if (stream && !document.hidden) refreshSoon();
}, 30_000);

// What is waited for elsewhere sends no event: such parts are asked for while they say so.
function poll() {
  if (main.querySelector("[data-poll]")) setTimeout(async () => { if (!document.hidden) await refresh(); poll(); }, 2000);
}
poll();

// --- drawings: where they are too wide, they are made smaller as far as they can be read, and are
// seen from their middle

const READABLE = 0.7;

function fit(frame) {
  const drawing = frame.querySelector("img, .wf");
  const natural = drawing?.naturalWidth || Number(drawing?.getAttribute("width"));
  if (!natural || !frame.clientWidth) return;
  const width = `${Math.max(Math.min(natural, frame.clientWidth), natural * READABLE)}px`;
  if (frame.style.getPropertyValue("--fit") === width) return;
  frame.style.setProperty("--fit", width);
  frame.scrollLeft = (frame.scrollWidth - frame.clientWidth) / 2;
}

const frames = new ResizeObserver((seen) => seen.forEach((each) => fit(each.target)));
for (const frame of main.querySelectorAll(".picture")) {
  frames.observe(frame);
  frame.addEventListener("load", () => fit(frame), true);
}

// --- keys and questions

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const field = document.querySelector(`[data-hotkey="${CSS.escape(event.key)}"]`);
  if (!field) return;
  event.preventDefault();
  field.focus();
});

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

// --- editor: what is typed is checked by the server, which answers with the same page's judgement

const editor = document.querySelector("form[data-check]");
if (editor) {
  const box = editor.elements.text;
  let pause = 0;
  let asked = new AbortController();
  let sent = false;

  const check = async () => {
    asked.abort();
    asked = new AbortController();
    if (box.value.length > 2 * editor.dataset.most) {
      document.getElementById("verdict").textContent = editor.dataset.tooLong;
      document.getElementById("faults").replaceChildren();
      return;
    }
    const body = new URLSearchParams(new FormData(editor));
    body.set("order", "live");
    let page;
    try {
      const answer = await fetch(location.pathname, { method: "POST", body, signal: asked.signal });
      if (!answer.ok) return;
      page = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      return; // The next stroke, or the button, asks again.
    }
    for (const id of ["verdict", "faults", "drawing"]) {
      const old = document.getElementById(id);
      const fresh = page.getElementById(id);
      // While it cannot be drawn, the last drawing stays, grey.
      const keeps = id === "drawing" && !fresh.childElementCount;
      old.toggleAttribute("data-old", keeps);
      if (!keeps && old.innerHTML !== fresh.innerHTML) old.replaceChildren(...fresh.childNodes);
      if (id === "drawing") fit(old);
    }
  };

  box.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(check, 400);
  });

  document.addEventListener("click", (event) => {
    const place = event.target.closest("a[data-line]");
    if (!place) return;
    event.preventDefault();
    // As the server counts: lines, and characters within them.
    const lines = box.value.split(/[\n\u0085\u2028\u2029]/);
    const above = lines.slice(0, place.dataset.line - 1);
    const within = [...(lines[above.length] || "")].slice(0, place.dataset.column - 1).join("");
    const start = above.reduce((length, line) => length + line.length + 1, 0) + within.length;
    box.focus();
    box.setSelectionRange(start, start + box.value.slice(start).search(/[\s,\]}]|$/));
    box.scrollTop = (box.scrollHeight * above.length) / lines.length - box.clientHeight / 2;
  });

  editor.addEventListener("submit", () => {
    sent = true;
  });
  window.addEventListener("beforeunload", (event) => {
    if (!sent && ("unsaved" in editor.dataset || box.value !== box.defaultValue)) event.preventDefault();
  });
}
