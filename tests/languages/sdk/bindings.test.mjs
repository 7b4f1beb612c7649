// The bindings that componentize-js makes of the contract have the loops that bindings.mjs replaces: with others,
// large views would be slow, and nothing else would tell.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import path from "node:path";
import test from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

import { speedUp } from "../../../policies/sdk/js/bindings.mjs";

const modules = process.env.ALLOT_NODE_MODULES;

test("lists of booleans are handed over in one loop", { skip: !modules && "no ALLOT_NODE_MODULES" }, async () => {
  const lib = path.join(modules, "@bytecodealliance/componentize-js/lib");
  const { splicer } = await import(pathToFileURL(path.join(lib, "spidermonkey-embedding-splicer.js")));
  const engine = await readFile(path.join(lib, "starlingmonkey_embedding.wasm"));
  const wit = fileURLToPath(new URL("../../../wit/0.3/allocation.wit", import.meta.url));
  const bindings = () => splicer.spliceBindings(engine, [], undefined, wit, "policy", false).jsBindings;
  assert.match(bindings(), /push\(!!/);
  speedUp(splicer);
  assert.equal(bindings().match(/= flags\(/g).length, 2);
  assert.doesNotMatch(bindings(), /push\(!!/);
});
