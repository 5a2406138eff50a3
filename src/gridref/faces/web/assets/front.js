// The list of catalogs: asks the server again when another search is typed, and for the extents of what
// comes into sight.

for (const each of document.querySelectorAll(".scripted")) each.hidden = false;

async function tell(place) {
  const response = await fetch(place.dataset.from, { headers: { accept: "application/json" } });
  const told = await response.json();
  if (!response.ok) throw new Error(told.reason);
  place.textContent = told.map(({ name, first, last }) => `${name}: ${first} … ${last}`).join("; ") || "–";
  place.title = place.textContent;
}

const sight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    sight.unobserve(target);
    ask(target);
  }
});

function ask(place) {
  tell(place).catch((error) => {
    const reason = error instanceof TypeError ? "the server does not answer: is it still running, and this device online?" : error.message;
    place.replaceChildren(`not read: ${reason} `, againBy(() => ask(place)));
    place.title = reason;
  });
}

function againBy(act) {
  const again = document.createElement("button");
  again.type = "button";
  again.textContent = "Try again";
  again.addEventListener("click", act);
  return again;
}

const search = document.getElementById("search");
const results = document.getElementById("results");
const TYPED_MS = 200;
let later = 0;
let asking = null;

function address() {
  const asked = [...search.querySelectorAll("input")].map(({ name, value }) => [name, value.trim()]);
  const query = new URLSearchParams(asked.filter(([, value]) => value)).toString();
  return query ? `?${query}` : location.pathname;
}

// Takes the results out of the page for this search; while extents are still being read, again and again.
async function find(place) {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    for (let isMore = true; isMore; ) {
      const response = await fetch(place, { headers: { accept: "text/html" }, signal });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const found = page.getElementById("results");
      const open = [...results.querySelectorAll(".facets details[open] summary")].map(({ textContent }) => textContent);
      results.replaceChildren(...found.childNodes);
      for (const each of results.querySelectorAll(".facets details")) each.open = open.includes(each.firstElementChild.textContent);
      history.replaceState(null, "", place);
      shown();
      isMore = Boolean(document.getElementById("found")?.dataset.unread);
    }
  } catch (error) {
    if (error.name !== "AbortError") failed(place);
  }
}

function failed(place) {
  const words = document.createElement("p");
  words.className = "problem";
  words.setAttribute("role", "alert");
  words.append("The server does not answer: is it still running, and this device online? ", againBy(() => find(place)));
  results.replaceChildren(words);
}

// Extents and previews of the rows that are there now.
function shown() {
  for (const place of document.querySelectorAll(".extent[data-from]")) sight.observe(place);
  document.dispatchEvent(new Event("catalogs"));
}

search?.addEventListener("input", () => {
  clearTimeout(later);
  later = setTimeout(() => find(address()), TYPED_MS);
});
shown();
if (document.getElementById("found")?.dataset.unread) find(location.href);
