// Looks at the book in a browser: each page has the title of its heading, links to the pages before and after it, figures with
// alternative text, no error in the console, nothing asked of a network, no scrolling sideways, and no violation that axe-core finds
// in its text. Then the five questions of the first page are typed into the search.
//
//   mdbook build docs --dest-dir /tmp/book
//   npm install --no-save playwright-core axe-core
//   node tests/browser/book.mjs /tmp/book
//
// Exits with 1 on any failure.

import { createReadStream, existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";

// From where it is called, as there is no package.json here.
const require = createRequire(path.join(process.cwd(), "book.mjs"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const book = process.argv[2];
if (!book || !existsSync(path.join(book, "index.html"))) {
  console.error("usage: node book.mjs FOLDER");
  process.exit(2);
}

/** What the search must find for a question: words of a reader, and the page that answers. */
const QUESTIONS = [
  ["work with verl", "how-to/verl.html"],
  ["what do I gain", "results/evidence.html"],
  ["write a rule", "how-to/writing-a-policy.html"],
  ["fair comparison", "explanation/fair-comparison.html"],
  ["crash resume", "reliability.html"],
];

// The search loads its index, which a browser does not allow from files.
const kinds = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const server = createServer((asked, answer) => {
  const file = path.join(book, decodeURIComponent(new URL(asked.url, "http://localhost").pathname));
  if (!existsSync(file)) {
    answer.writeHead(404).end();
    return;
  }
  answer.writeHead(200, { "content-type": kinds[path.extname(file)] ?? "application/octet-stream" });
  createReadStream(file).pipe(answer);
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const root = `http://127.0.0.1:${server.address().port}`;

const contents = readFileSync(path.join(book, "toc.html"), "utf8");
const pages = [...new Set([...contents.matchAll(/href="([^"#]+\.html)"/g)].map((found) => found[1]))];
const failures = [];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync", "--disable-background-networking"],
});
for (const [i, name] of pages.entries()) await look(name, pages[i - 1], pages[i + 1]);
for (const [words, wanted] of QUESTIONS) await search(words, wanted);
await browser.close();
server.close();
for (const failure of failures) console.error(`FAILED ${failure}`);
console.log(`${pages.length} pages, ${QUESTIONS.length} questions, ${failures.length} failures`);
process.exit(failures.length === 0 && pages.length > 20 ? 0 : 1);

/** Everything about one page. */
async function look(name, before, after) {
  const must = (holds, what) => holds || failures.push(`${name}: ${what}`);
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  page.on("console", (m) => must(m.type() !== "error", `the console says: ${m.text()}`));
  page.on("pageerror", (e) => must(false, `an error: ${e.message}`));
  page.on("request", (r) => must(r.url().startsWith(root) || r.url().startsWith("data:"), `it asks for ${r.url()}`));
  await page.goto(`${root}/${name}`);
  const seen = await page.evaluate(() => ({
    title: document.title,
    heading: document.querySelector("main h1")?.textContent.trim(),
    headings: document.querySelectorAll("main h1").length,
    mute: [...document.querySelectorAll("main img")].filter((e) => !e.alt).map((e) => e.src),
    broken: [...document.querySelectorAll("main img")].filter((e) => !e.naturalWidth).map((e) => e.src),
    before: document.querySelector("a.nav-chapters.previous")?.getAttribute("href"),
    after: document.querySelector("a.nav-chapters.next")?.getAttribute("href"),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  }));
  must(seen.headings === 1, `it has ${seen.headings} headings of the first level`);
  must(seen.title === `${seen.heading} - allot` || name === "index.html", `“${seen.title}” over “${seen.heading}”`);
  must(seen.mute.length === 0, `without alternative text: ${seen.mute.join(" ")}`);
  must(seen.broken.length === 0, `not shown: ${seen.broken.join(" ")}`);
  must(seen.wide <= 0, `it scrolls ${seen.wide} px sideways`);
  const leads = (href, to) => (to ? href && path.posix.join(path.posix.dirname(name), href) === to : !href);
  must(leads(seen.before, before), `the page before is ${seen.before}, not ${before}`);
  must(leads(seen.after, after), `the next page is ${seen.after}, not ${after}`);
  await page.evaluate(axe);
  const found = await page.evaluate(() => globalThis.axe.run("main", { resultTypes: ["violations"] }));
  for (const v of found.violations) {
    must(false, `axe: ${v.id}: ${v.help}: ${v.nodes[0].html.slice(0, 120)} (${v.nodes.length} places)`);
  }
  await context.close();
}

/** The page that answers is among the first ten that the search finds. */
async function search(words, wanted) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${root}/index.html?search=${encodeURIComponent(words)}`);
  const results = page.locator("#mdbook-searchresults a, #searchresults a");
  try {
    await results.first().waitFor({ timeout: 15000 });
    const all = await results.evaluateAll((links) => links.map((link) => new URL(link.href).pathname.slice(1)));
    if (!all.slice(0, 10).includes(wanted)) failures.push(`“${words}” finds ${all.slice(0, 10).join(" ")}, not ${wanted}`);
  } catch {
    failures.push(`“${words}” finds nothing`);
  }
  await context.close();
}
