"use strict";
// An open experiment's page follows its evidence: asks with the ETag, and replaces what changed.
(() => {
  const page = document.querySelector("[data-live]");
  if (!page) return;
  const notice = document.querySelector("[data-notice]");
  const LONGEST = 300;
  let { live: address, etag, wait } = page.dataset;
  let timer = 0;
  let asking = false;
  let failures = 0;
  const shown = {};

  function say(text) {
    notice.textContent = text;
    notice.hidden = text === "";
  }

  function replace(part, markup) {
    if (shown[part] === markup) return;
    const element = page.querySelector(`[data-part="${part}"]`);
    const open = [...element.querySelectorAll("details[open]")].map((one) => one.dataset.keep);
    const first = !(part in shown);
    shown[part] = markup;
    element.innerHTML = markup; // Made by our own templates, escaped there.
    for (const name of open) element.querySelector(`details[data-keep="${name}"]`)?.setAttribute("open", "");
    window.refresh(element);
    if (!first) {
      element.classList.remove("fresh");
      void element.offsetWidth;
      element.classList.add("fresh");
    }
  }

  function show(told) {
    if (told.version !== page.dataset.version) {
      say("There is a new version of this page. Reload it.");
      return false;
    }
    for (const [part, markup] of Object.entries(told.parts)) replace(part, markup);
    wait = told.wait;
    return !told.decided;
  }

  async function ask() {
    const answer = await fetch(address, {
      headers: { Accept: "application/json", "If-None-Match": etag }, cache: "no-store",
    });
    if (answer.status === 304) {
      wait = Number(answer.headers.get("Retry-After")) || wait;
      return true;
    }
    if (answer.status === 401) {
      say("You are signed out. Reload the page to sign in.");
      return false;
    }
    if (!answer.ok) throw new Error(String(answer.status));
    etag = answer.headers.get("ETag");
    return show(await answer.json());
  }

  async function turn() {
    if (asking || document.hidden) return;
    asking = true;
    clearTimeout(timer);
    let goesOn = true;
    try {
      goesOn = await ask();
      if (failures) say("");
      failures = 0;
    } catch {
      failures += 1;
      if (failures > 1) say("The service does not answer. This page tries again by itself.");
    }
    asking = false;
    page.dataset.asked = String(Number(page.dataset.asked || 0) + 1);
    if (goesOn) timer = setTimeout(turn, 1000 * Math.min(wait * 2 ** failures, LONGEST));
    else stop();
  }

  function stop() {
    removeEventListener("focus", turn);
    document.removeEventListener("visibilitychange", turn);
    page.dataset.stopped = "";
  }

  addEventListener("focus", turn);
  document.addEventListener("visibilitychange", turn);
  timer = setTimeout(turn, 1000 * wait);
})();
