"use strict";
// What every page does: sign in by a link's fragment, copy, and tell times as the reader counts them.
(() => {
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const local = new Intl.DateTimeFormat("en-GB", {
    day: "2-digit", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
    timeZoneName: "short",
  });

  function distance(at) {
    const seconds = (at - Date.now()) / 1000;
    const [unit, size] = UNITS.find(([, length]) => Math.abs(seconds) >= length) || UNITS[3];
    return relative.format(Math.round(seconds / size), unit);
  }

  // In the reader's zone; the server's UTC stays where the pointer rests.
  function tellTimes(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      element.title ||= element.textContent;
      const more = "relative" in element.dataset ? ` (${distance(at)})` : "";
      element.textContent = `${local.format(at)}${more}`;
    }
  }

  function offerCopies(root) {
    if (!navigator.clipboard) return; // Only where the browser trusts the connection.
    for (const button of root.querySelectorAll("[data-copy]")) {
      button.hidden = false;
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
    }
  }

  function enterByLink() {
    const form = document.querySelector("[data-sign-in]");
    const code = location.hash.slice(1);
    if (!form || !/^in_[\w-]{43}$/.test(code)) return;
    // The code is used up by being sent; it must not stay in the history either.
    history.replaceState(null, "", location.pathname + location.search);
    form.elements.secret.value = code;
    document.querySelector("[data-entering]").hidden = false;
    form.submit();
  }

  window.refresh = (root) => { tellTimes(root); offerCopies(root); };
  window.refresh(document);
  setInterval(() => tellTimes(document), 30000);
  // Whoever pastes a link while on the page changes nothing but its fragment.
  addEventListener("hashchange", enterByLink);
  enterByLink();
})();
