// The bindings that componentize-js makes, with lists of booleans handed over in one loop each. Its own loop
// calls two functions of the engine for every boolean, which was two thirds of the time of a large view.

/** Has componentize-js, whose splicer this is, make such bindings from now on. */
export function speedUp(splicer) {
  const { spliceBindings } = splicer;
  splicer.spliceBindings = (...asked) => {
    const made = spliceBindings(...asked);
    return { ...made, jsBindings: withFlags(made.jsBindings) };
  };
}

const LOOP =
  /var (\w+) = \[\];\s+for \(let i = 0; i < (\w+); i\+\+\) \{\s+const base = (\w+) \+ i \* 1;\s+var (\w+) = dataView\(\$memory\)\.getUint8\(base \+ 0, true\);\s+\1\.push\(!!\4\);\s+\}/g;

/** Bindings of another version may have other loops: they stay as they are, and are slow. */
function withFlags(bindings) {
  const loops = bindings.replace(LOOP, "var $1 = flags($3, $2);");
  return `${loops}
function flags(start, count) {
  const bytes = new Uint8Array($memory.buffer, start, count);
  const flags = [];
  for (let i = 0; i < count; i++) flags[i] = bytes[i] === 1;
  return flags;
}
`;
}
