// Lines to copy name the server as this browser reaches it, and buttons copy them.

const root = new URL(document.querySelector("nav a").getAttribute("href"), location.href).href;
for (const code of document.querySelectorAll("section[data-origin] code")) {
  const written = code.closest("[data-origin]").dataset.origin;
  code.textContent = code.textContent.replaceAll(`${written}/`, root);
}
for (const link of document.querySelectorAll("section[data-origin] a")) {
  const written = link.closest("[data-origin]").dataset.origin;
  link.href = link.getAttribute("href").replaceAll(`${written}/`, root);
}
document.addEventListener("click", async ({ target: button }) => {
  if (!button.matches(".copy")) return;
  const code = button.parentElement.querySelector("code");
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(code.textContent);
  } else {
    getSelection().selectAllChildren(code); // browsers let pages copy over HTTPS only
  }
  button.textContent = navigator.clipboard ? "Copied" : "Selected: Ctrl+C copies";
  setTimeout(() => (button.textContent = "Copy"), 2000);
});
