// Where the viewer goes on a page, and small pictures on the list of catalogs.
import "uplot/dist/uPlot.min.css";
import { button, element } from "./controls.js";
import { preview } from "./preview.js";
import { Viewer } from "./viewer.js";

const sight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    sight.unobserve(target);
    preview(target).catch(() => { // its page says why
      target.hidden = true;
      target.dataset.ready = "failed";
    });
  }
});
const watch = () => document.querySelectorAll(".preview:not([data-ready])").forEach((canvas) => sight.observe(canvas));
document.addEventListener("catalogs", watch); // when another search has found others
watch();

const place = document.getElementById("viewer");
let viewer = null;
const begin = () => {
  viewer?.end();
  const begun = (viewer = new Viewer(place));
  begun.start().catch((error) => {
    if (begun !== viewer) return;
    const words = element("p", { class: "problem", role: "alert" }, `This could not be read: ${error.message}`);
    place.replaceChildren(words, button("Try again", begin));
    place.dataset.ready = "failed";
  });
};
if (place) {
  begin();
  addEventListener("hashchange", () => location.hash.includes("=") && begin()); // another link to this page
}
