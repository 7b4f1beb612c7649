// Makes a component of a policy or a grader: node build.mjs PROJECT CONTRACT.wit OUT.wasm
//
// PROJECT has a policy.js or a grader.js. Its modules and those of the SDK go to a folder of their own, so that the
// lines an error names are the same wherever the project lies.
//
// Exits with 0 and says what it built with; with 1 where the author's modules are at fault, with 2 where it is
// called wrongly, with 3 where componentize-js is not installed.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { speedUp } from "./bindings.mjs";
import { Modules, Trouble } from "./modules.mjs";

const COMPONENTIZE = "@bytecodealliance/componentize-js";
/** Versions that work together. The last is one that componentize-js uses and does not ask for. */
const KNOWN_GOOD = `${COMPONENTIZE}@0.23.0 @bytecodealliance/jco@1.35.0 @bytecodealliance/preview2-shim@0.25.0`;
/** What a project is of: its file, what that exports, and how the SDK makes the component's export of it. */
const KINDS = [
  {
    file: "policy.js",
    exports: ["name", "version", "summary", "decide"],
    world: "policy",
    component: "component.js",
    entry: ["allocator", "allocatorOf"],
  },
  {
    file: "grader.js",
    exports: ["name", "version", "summary", "grade|gradeGroup"],
    world: "reward",
    component: "grader/component.js",
    entry: ["grader", "graderOf"],
  },
];
/** All that a component has is a voice. Time and chance stand still, and `trap` in aloud.js needs no clock. */
const LEFT_OUT = ["random", "clocks", "http", "fetch-event"];

try {
  console.log(await build(process.argv.slice(2)));
} catch (error) {
  if (!(error instanceof Trouble)) throw error;
  console.error(error.message);
  process.exitCode = error.exit;
}

async function build(args) {
  if (args.length !== 3) throw new Trouble("usage: node build.mjs PROJECT CONTRACT.wit OUT.wasm", 2);
  const [project, contract, out] = args.map((arg) => path.resolve(arg));
  const kind = KINDS.find(({ file }) => existsSync(path.join(project, file)));
  if (!kind) throw new Trouble(`${project} has no policy.js and no grader.js`);
  const author = path.join(project, kind.file);
  const tool = await installed(project);

  const modules = new Modules(tool.parse, project);
  const { exports } = modules.take(author);
  for (const name of kind.exports) {
    const either = name.split("|");
    if (either.some((one) => exports.has(one))) continue;
    throw new Trouble(`${kind.file} does not export ${either.map((one) => `\`${one}\``).join(" or ")}`);
  }
  const component = path.join(sdk(project, modules.files), kind.component);
  modules.take(component);

  const room = realpathSync(mkdtempSync(path.join(tmpdir(), "allot-build-")));
  // Names of files start from the current folder, if the entry lies in it.
  process.chdir(room);
  try {
    const root = ancestor(modules.files);
    for (const file of modules.files) {
      const copy = path.join(room, path.relative(root, file));
      mkdirSync(path.dirname(copy), { recursive: true });
      writeFileSync(copy, modules.take(file).source);
    }
    const at = (file) => `./${path.relative(root, file).replaceAll(path.sep, "/")}`;
    const entry = path.join(room, "entry.js");
    const [name, maker] = kind.entry;
    writeFileSync(
      entry,
      `import * as author from "${at(author)}";
import { ${maker} } from "${at(component)}";
export const ${name} = ${maker}(author);
`,
    );
    writeFileSync(out, await componentized(tool.componentize, entry, contract, kind.world));
  } finally {
    process.chdir(project);
    rmSync(room, { recursive: true, force: true });
  }
  return `componentize-js ${tool.version}, node ${process.versions.node}`;
}

/** componentize-js: the project's own, or else that of a folder named in the environment. */
async function installed(project) {
  const folders = [];
  for (let at = project; folders.at(-1) !== path.join(at, "node_modules"); at = path.dirname(at)) {
    folders.push(path.join(at, "node_modules"));
  }
  const named = [process.env.ALLOT_NODE_MODULES, ...(process.env.NODE_PATH ?? "").split(path.delimiter)];
  const homes = [...folders, ...named.filter(Boolean)].map((folder) => path.resolve(folder, COMPONENTIZE));
  const home = homes.find((home) => existsSync(path.join(home, "package.json")));
  if (!home) {
    throw new Trouble(
      `${COMPONENTIZE} is not installed in ${project}
hint: npm install there, as its package.json names it
hint: or set ALLOT_NODE_MODULES to a node_modules folder that has it`,
      3,
    );
  }
  const manifest = realpathSync(path.join(home, "package.json"));
  const { version, exports } = JSON.parse(readFileSync(manifest, "utf8"));
  try {
    const own = (file) => import(pathToFileURL(path.join(path.dirname(manifest), file)));
    const { componentize } = await own(exports.import);
    speedUp((await own("lib/spidermonkey-embedding-splicer.js")).splicer);
    // componentize-js has this parser with it.
    return { version, componentize, parse: createRequire(manifest)("oxc-parser").parseSync };
  } catch (error) {
    const [why] = error.message.split(/ imported from|\n/);
    throw new Trouble(
      `${COMPONENTIZE} ${version} does not load: ${why}
hint: it goes with the versions in the template's package.json: npm install --save-dev ${KNOWN_GOOD}`,
      3,
    );
  }
}

async function componentized(componentize, sourcePath, witPath, worldName) {
  try {
    const options = { sourcePath, witPath, worldName, disableFeatures: LEFT_OUT };
    return (await componentize(options)).component;
  } catch (error) {
    throw new Trouble(cause(error.message));
  }
}

/** The folder of the SDK that the author's modules import, so that both halves are of one copy. */
function sdk(project, files) {
  const folders = [...files.map((file) => path.dirname(file)), path.join(project, "sdk")];
  const has = (folder) => existsSync(path.join(folder, "build.mjs"));
  return folders.find(has) ?? path.dirname(fileURLToPath(import.meta.url));
}

/** The deepest folder that holds them all. */
function ancestor(files) {
  let folder = path.dirname(files[0]);
  while (!files.every((file) => file.startsWith(folder + path.sep))) folder = path.dirname(folder);
  return folder;
}

/** What the engine says of a module that does not load, without the words of the tools around it. */
function cause(message) {
  const noise = /^(Failed to initialize|Exception while|Redirecting call|Error: the `|Caused by:|\s*$)/;
  const [first] = message.split("\nAdditionally,");
  const own = first.split("\n").filter((line) => !noise.test(line));
  return (own.length > 0 ? own.slice(0, 8) : [message]).join("\n");
}
