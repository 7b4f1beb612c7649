// Looks at reports in a browser: at four widths and on a dark page, no error in the console, nothing asked of a
// network, no scrolling of the page sideways, the result whole where there is room for it, figures in the size that
// fits, and the axis switch by keyboard alone.
//
//   apt-get install -y chromium        (or CHROMIUM=/path/to/chromium)
//   npm install --no-save playwright-core     (and axe-core, if accessibility is to be checked too)
//   ALLOT_PAGES=/tmp/pages cargo test --release --test report_pages
//   node tests/browser/check.mjs /tmp/pages/*/index.html
//
// With SHOTS=FOLDER it leaves pictures of what it saw, and the page in print. Exits with 1 on any failure.

import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

// From where it is called, as there is no package.json here.
const require = createRequire(path.join(process.cwd(), "check.mjs"));
const { chromium } = require("playwright-core");

const pages = process.argv.slice(2);
if (pages.length === 0) {
  console.error("usage: node check.mjs INDEX.html…");
  process.exit(2);
}
let axe = null;
try {
  axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
} catch {
  console.log("axe-core is not there: accessibility is not checked");
}

const failures = [];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update"],
});
for (const file of pages) {
  for (const width of [1920, 1400, 1280, 390]) {
    await look(file, width, "light");
  }
  await look(file, 1400, "dark");
}
await browser.close();
for (const failure of failures) console.error(`FAILED ${failure}`);
console.log(`${pages.length} pages, ${failures.length} failures`);
process.exit(failures.length === 0 ? 0 : 1);

/** Everything about one page at one width, in light or dark. */
async function look(file, width, scheme) {
  const named = `${path.basename(path.dirname(path.resolve(file)))} at ${width} px, ${scheme}`;
  const must = (holds, what) => holds || failures.push(`${named}: ${what}`);
  // The page itself forbids scripts; axe-core is let in past that.
  const context = await browser.newContext({ viewport: { width, height: 900 }, bypassCSP: true, colorScheme: scheme });
  const page = await context.newPage();
  page.on("console", (m) => must(!["error", "warning"].includes(m.type()), `the console says: ${m.text()}`));
  page.on("pageerror", (e) => must(false, `an error: ${e.message}`));
  page.on("request", (r) => must(/^(file|data):/.test(r.url()), `it asks for ${r.url()}`));
  await page.goto(pathToFileURL(path.resolve(file)).href);

  const wide = await page.evaluate(() => {
    const all = [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, .skip, svg"));
    const room = document.documentElement.clientWidth;
    const out = all.filter((e) => e.getBoundingClientRect().right > room + 0.5);
    return { page: document.documentElement.scrollWidth - room, out: out.map((e) => e.outerHTML.slice(0, 80)) };
  });
  must(wide.page <= 0, `it scrolls ${wide.page} px sideways`);
  must(wide.out.length === 0, `these are too wide: ${wide.out.slice(0, 3).join(" ")}`);

  if (width >= 1400) {
    const hidden = await page.evaluate(() => {
      const frame = document.querySelector(".scroll.result");
      return frame ? frame.scrollWidth - frame.clientWidth : 0;
    });
    must(hidden <= 0, `${hidden} px of the result are out of sight`);
  }

  const grounds = await page.evaluate(() => {
    const sheets = [...document.querySelectorAll("figure svg > rect:first-of-type")];
    const colours = [document.body, ...sheets].map((e) => {
      const style = getComputedStyle(e);
      return e === document.body ? style.backgroundColor : style.fill;
    });
    return colours.map((c) => c.match(/[\d.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765);
  });
  const right = (light) => (scheme === "dark" ? light < 0.2 : light > 0.9);
  must(grounds.every(right), `page or figures have a ground of the other scheme: ${grounds.join(" ")}`);

  const figures = await page.evaluate(() => {
    const shown = (e) => e.getClientRects().length > 0;
    const text = [...document.querySelectorAll("figure svg text")].filter(shown);
    const cut = text.filter((t) => {
      const [own, sheet] = [t.getBoundingClientRect(), t.ownerSVGElement.getBoundingClientRect()];
      return own.left < sheet.left - 1 || own.right > sheet.right + 1 || own.bottom > sheet.bottom + 1;
    });
    const boxes = text.map((t) => [t, t.getBoundingClientRect()]);
    const over = boxes.flatMap(([a, p], i) => boxes.slice(i + 1)
      .filter(([b, q]) => a.ownerSVGElement === b.ownerSVGElement
        && Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2
        && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 5)
      .map(([b]) => `“${a.textContent}” on “${b.textContent}”`));
    return {
      both: [...document.querySelectorAll("figure")].filter((f) =>
        [...f.querySelectorAll(".wide, .narrow")].filter(shown).length > 1).length,
      cut: cut.map((t) => t.textContent),
      over,
      small: text.filter((t) => t.getBoundingClientRect().height < 11).map((t) => t.textContent),
    };
  });
  must(figures.both === 0, `${figures.both} figures show both sizes`);
  must(figures.cut.length === 0, `text is cut: ${figures.cut.slice(0, 4).join(" | ")}`);
  must(figures.over.length === 0, `text lies on text: ${figures.over.slice(0, 4).join(", ")}`);
  must(figures.small.length === 0, `text is too small: ${figures.small.slice(0, 4).join(" | ")}`);

  await byKeyboard(page, must);
  if (axe) {
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    for (const v of found.violations) {
      must(false, `axe: ${v.id}: ${v.help}: ${v.nodes[0].html.slice(0, 160)} (${v.nodes.length} places)`);
    }
  }
  if (process.env.SHOTS) await shoot(page, file, width, scheme);
  await context.close();
}

/** The skip link comes first; then the axis switch, through all of its axes. */
async function byKeyboard(page, must) {
  await page.keyboard.press("Tab");
  must(await page.evaluate(() => document.activeElement.matches(".skip")), "the skip link is not first");
  await page.keyboard.press("Enter");
  must(await page.evaluate(() => location.hash === "#main"), "the skip link leads nowhere");
  const axes = await page.evaluate(() =>
    [...document.querySelectorAll("input[name=axis]")].map((input) => input.value));
  const shown = () => page.evaluate(() =>
    [...document.querySelectorAll(".panel")].filter((p) => p.getClientRects().length > 0)
      .map((p) => p.className.replace("panel panel-", "")));
  if (axes.length === 0) return;
  must((await shown()).join() === axes[0], `at first it shows ${await shown()}`);
  for (let i = 0; i < 60 && !(await page.evaluate(() => document.activeElement.name === "axis")); i += 1) {
    await page.keyboard.press("Tab");
  }
  const seen = await page.evaluate(() =>
    document.activeElement.name === "axis" && getComputedStyle(document.activeElement).outlineStyle !== "none");
  must(seen, "the axis switch can't be reached by Tab, or does not show it");
  for (const axis of [...axes.slice(1), axes[0]]) {
    await page.keyboard.press("ArrowRight");
    must((await shown()).join() === axis, `after an arrow it shows ${await shown()}, not ${axis}`);
  }
}

/** Pictures of what was seen. */
async function shoot(page, file, width, scheme) {
  const folder = process.env.SHOTS;
  if (!existsSync(folder)) mkdirSync(folder, { recursive: true });
  const name = path.join(folder, `${path.basename(path.dirname(path.resolve(file)))}-${width}-${scheme}`);
  await page.screenshot({ path: `${name}.png`, fullPage: true });
  if (width === 1280) await page.pdf({ path: `${name}.pdf`, format: "A4", printBackground: true });
}
