// The tree of a catalog: found by words, folded by groups. The address holds both.

const tree = document.getElementById("tree");
const filter = document.getElementById("filter");
const told = document.getElementById("filtered");
const leaves = [...tree.querySelectorAll("li")].map((leaf) => {
  const group = leaf.closest("details");
  return { leaf, group, text: `${group?.dataset.path ?? ""}/${leaf.textContent}`.toLowerCase() };
});
const groups = [...tree.querySelectorAll("details")].map((group) => ({ group, wasOpen: group.open, isOpen: group.open }));

function show() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = leaves.filter(({ leaf, text }) => !(leaf.hidden = !words.every((word) => text.includes(word))));
  const found = new Set(shown.map(({ group }) => group));
  for (const each of groups) {
    each.group.hidden = words.length > 0 && !found.has(each.group);
    each.group.open = words.length > 0 || each.isOpen; // what was found is not folded away
  }
  told.textContent = words.length ? `${shown.length} of ${leaves.length} arrays` : `${leaves.length} arrays`;
}

// "#find=wind&open=model/upper&shut=model": what differs from the page as it came.
function keep() {
  const state = filter.value.trim() ? [["find", filter.value.trim()]] : [];
  for (const { group, isOpen, wasOpen } of groups) if (isOpen !== wasOpen) state.push([isOpen ? "open" : "shut", group.dataset.path]);
  const text = new URLSearchParams(state).toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

function take() {
  const asked = new URLSearchParams(location.hash.slice(1));
  filter.value = asked.get("find") ?? "";
  const [open, shut] = [asked.getAll("open"), asked.getAll("shut")];
  for (const each of groups) {
    const { path } = each.group.dataset;
    each.isOpen = each.wasOpen ? !shut.includes(path) : open.includes(path);
  }
  show();
}

for (const each of groups) {
  each.group.querySelector("summary").addEventListener("click", () => {
    if (filter.value.trim()) return; // all that was found is open meanwhile
    each.isOpen = !each.group.open;
    keep();
  });
}
filter.addEventListener("input", () => {
  show();
  keep();
});
addEventListener("hashchange", take);
take();
