// The contract's types live in types.d.ts, for editors; there is nothing of them at run time.

export {};
