// The list of catalogs: finds by name and title; asks for extents of what comes into sight.

for (const each of document.querySelectorAll(".scripted")) each.hidden = false;

const rows = [...document.querySelectorAll("#catalogs tbody tr")];
const texts = rows.map((row) => row.textContent.toLowerCase());
const find = document.getElementById("find");
const found = document.getElementById("found");

find?.addEventListener("input", () => {
  const words = find.value.toLowerCase().split(/\s+/);
  let shown = 0;
  rows.forEach((row, number) => {
    row.hidden = !words.every((word) => texts[number].includes(word));
    shown += row.hidden ? 0 : 1;
  });
  found.textContent = `${shown} of ${rows.length} catalogs`;
});

async function tell(place) {
  const response = await fetch(place.dataset.from, { headers: { accept: "application/json" } });
  const told = await response.json();
  place.textContent = response.ok
    ? told.map(({ name, first, last }) => `${name}: ${first} … ${last}`).join("; ") || "–"
    : `not read: ${told.reason}`;
}

const sight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    sight.unobserve(target);
    tell(target).catch(() => (target.textContent = "the server does not answer"));
  }
});
for (const place of document.querySelectorAll(".extent")) sight.observe(place);
