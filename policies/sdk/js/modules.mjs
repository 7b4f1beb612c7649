// The modules of a policy or a grader: its own file and all that it imports, checked as far as a parser can.

import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

/** The functions of the contract's imports. */
const GIVEN = new Set(["column", "costs", "counts", "measures", "write"]);

/** Something to tell the author in a few lines, without a stack. */
export class Trouble extends Error {
  constructor(message, exit = 1) {
    super(message);
    this.exit = exit;
  }
}

/** Modules by file: `{ source, exports }` of each. */
export class Modules {
  #parse;
  #home;
  #known = new Map();

  /** With a parser, and the folder that files are told from. */
  constructor(parse, home) {
    this.#parse = parse;
    this.#home = home;
  }

  get files() {
    return [...this.#known.keys()];
  }

  /** A module, once what it imports is known too. */
  take(file) {
    if (this.#known.has(file)) return this.#known.get(file);
    const source = readFileSync(file, "utf8");
    const place = (offset) => {
      const before = source.slice(0, offset).split("\n");
      return `${path.relative(this.#home, file)}:${before.length}:${before.at(-1).length + 1}`;
    };
    const { errors, module } = this.#parse(file, source, { sourceType: "module", showSemanticErrors: true });
    if (errors.length > 0) {
      const [{ message, labels }] = errors;
      throw new Trouble(`${place(labels[0]?.start ?? 0)}: ${message}`);
    }
    for (const { start } of module.dynamicImports) {
      throw new Trouble(`${place(start)}: a component has no \`import()\`; use \`import … from\``);
    }
    const exported = module.staticExports.flatMap((e) => e.entries);
    const names = exported.map(({ exportName: { kind, name } }) => (kind === "Default" ? "default" : name));
    const taken = { source, exports: new Set(names.filter(Boolean)) };
    this.#known.set(file, taken);

    for (const { moduleRequest, importName, exportName } of exported) {
      if (!moduleRequest) continue;
      const from = this.#imported(file, moduleRequest, place);
      if (exportName.kind === "None") from.exports.forEach((name) => taken.exports.add(name));
      else demand(from, importName, moduleRequest, place);
    }
    for (const { moduleRequest, entries } of module.staticImports) {
      const from = this.#imported(file, moduleRequest, place);
      for (const { importName } of entries) demand(from, importName, moduleRequest, place);
    }
    return taken;
  }

  #imported(file, { value, start }, place) {
    // What the contract gives: only the SDK asks for it.
    if (value.startsWith("rollout:")) return { exports: GIVEN };
    if (!/^\.\.?\//.test(value)) {
      throw new Trouble(`${place(start)}: \`${value}\` is no file of the policy, named with ./ or ../`);
    }
    const target = path.resolve(path.dirname(file), value);
    if (!existsSync(target)) throw new Trouble(`${place(start)}: there is no file \`${value}\``);
    return this.take(target);
  }
}

function demand(from, { kind, name, start }, { value }, place) {
  const wanted = kind === "Default" ? "default" : name;
  if (wanted && !from.exports.has(wanted)) {
    throw new Trouble(`${place(start)}: \`${value}\` exports no \`${wanted}\``);
  }
}
