"use strict";
// Puts new parts in place of the old ones. What a person reads stays: the scroll position, open
// details, and the part that has the focus.
const EVERY_MS = 15000;

async function refresh() {
  if (document.hidden) return;
  const age = document.getElementById("age");
  try {
    const answer = await fetch(location.href, {cache: "no-store"});
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-part]")) {
      const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
      if (!other || part.contains(document.activeElement)) continue;
      const open = [...part.querySelectorAll("details")].map((one) => one.open);
      const left = [...part.querySelectorAll(".wide")].map((one) => one.scrollLeft);
      part.replaceChildren(...other.childNodes);
      [...part.querySelectorAll("details")].forEach((one, at) => { one.open = open[at] || false; });
      [...part.querySelectorAll(".wide")].forEach((one, at) => { one.scrollLeft = left[at] || 0; });
    }
  } catch {
    if (age) age.textContent = "rltuned does not answer; what is shown is old";
  }
}

setInterval(refresh, EVERY_MS);
