// Parts of a page as one picture: canvases, and the lines and words of drawings and of HTML around them.

const SHAPES = "line, path, polygon, rect";

// Draws what is in `places` as it is on the page, below `heads` of some lines; gives a canvas.
export function drawnTogether(places, heads) {
  const ratio = devicePixelRatio;
  const boxes = places.map((place) => place.getBoundingClientRect()).filter(({ width }) => width);
  const [left, top] = [Math.min(...boxes.map((box) => box.left)), Math.min(...boxes.map((box) => box.top))];
  const [right, bottom] = [Math.max(...boxes.map((box) => box.right)), Math.max(...boxes.map((box) => box.bottom))];
  const page = getComputedStyle(document.body);
  const size = parseFloat(page.fontSize);
  const above = size * (1.4 * heads.length + 1);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil((right - left + size) * ratio);
  canvas.height = Math.ceil((bottom - top + above) * ratio);
  const context = canvas.getContext("2d");
  context.fillStyle = page.backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const onPage = [ratio, 0, 0, ratio, -left * ratio, (above - top) * ratio]; // from places in the window
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  heads.forEach((words, line) => writeWords(context, words, [size / 2, size * (1.4 * line + 1.4)], page));
  for (const place of places) drawPlace(context, place, onPage);
  return canvas;
}

function drawPlace(context, place, onPage) {
  for (const each of place.querySelectorAll("canvas")) {
    const { left, top, width, height } = each.getBoundingClientRect();
    context.setTransform(...onPage);
    context.imageSmoothingEnabled = false;
    context.drawImage(each, left, top, width, height);
  }
  for (const each of place.querySelectorAll(SHAPES)) drawShape(context, each, onPage);
  for (const each of place.querySelectorAll("svg text")) {
    inside(context, each, onPage);
    const style = getComputedStyle(each);
    context.textAlign = { start: "left", end: "right" }[style.textAnchor] ?? "center";
    const dy = parseFloat(each.getAttribute("dy") ?? 0) * parseFloat(style.fontSize);
    writeWords(context, each.textContent, [each.x.baseVal[0]?.value ?? 0, (each.y.baseVal[0]?.value ?? 0) + dy], style, style.fill);
  }
  context.textAlign = "left";
  for (const each of textsOf(place)) {
    const range = document.createRange();
    range.selectNodeContents(each);
    const { left, bottom, width } = range.getBoundingClientRect();
    if (!width || each.parentElement.closest(".unseen")) continue;
    context.setTransform(...onPage);
    const style = getComputedStyle(each.parentElement);
    writeWords(context, each.textContent, [left, bottom - 0.28 * parseFloat(style.fontSize)], style);
  }
}

// Texts of HTML, one by one.
function textsOf(place) {
  const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) if (!walker.currentNode.parentElement.closest("svg, canvas")) found.push(walker.currentNode);
  return found;
}

function inside(context, shape, onPage) {
  const { a, b, c, d, e, f } = shape.getScreenCTM();
  context.setTransform(...onPage);
  context.transform(a, b, c, d, e, f);
}

function drawShape(context, shape, onPage) {
  inside(context, shape, onPage);
  const { fill, stroke, strokeWidth, opacity } = getComputedStyle(shape);
  const value = (name) => shape[name].baseVal.value;
  const path = new Path2D(shape.getAttribute("d") ?? undefined);
  if (shape.tagName === "line") path.lineTo(value("x1"), value("y1")), path.lineTo(value("x2"), value("y2"));
  if (shape.tagName === "rect") path.rect(value("x"), value("y"), value("width"), value("height"));
  for (const { x, y } of shape.points ?? []) path.lineTo(x, y);
  context.globalAlpha = Number(opacity);
  Object.assign(context, { fillStyle: fill, strokeStyle: stroke, lineWidth: parseFloat(strokeWidth) });
  if (fill !== "none") context.fill(path);
  if (stroke !== "none") context.stroke(path);
  context.globalAlpha = 1;
}

function writeWords(context, words, [x, y], style, colour = style.color) {
  Object.assign(context, { font: `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`, fillStyle: colour });
  context.fillText(words, x, y);
}
