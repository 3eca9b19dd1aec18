// SPDX-License-Identifier: MIT
// For readers who hear a page: what the theme and Sphinx leave without a name or with a wrong one.
document.addEventListener("DOMContentLoaded", () => {
  // The arrow that opens a part of the list of pages has no words.
  for (const arrow of document.querySelectorAll("details > summary:not([aria-label])")) {
    if (!arrow.textContent.trim()) {
      const link = arrow.closest("li")?.querySelector("a");
      arrow.setAttribute("aria-label", `Pages below ${link ? link.textContent.trim() : "this one"}`);
    }
  }
  // The parameters of a long signature are laid out as a list of definitions that has no terms.
  for (const part of document.querySelectorAll("dt.sig dl, dt.sig dd")) part.setAttribute("role", "none");
});
