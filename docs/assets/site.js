// What the theme leaves out for people who use no mouse, or no screen.
addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const region of document.querySelectorAll(".md-typeset__scrollwrap, .highlight pre, pre code")) {
    region.tabIndex = 0; // it scrolls: the arrow keys have to reach it
  }
});
