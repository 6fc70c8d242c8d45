// Loads the packages of the current directory into a context of node:vm, as Jest does, and generates there. On Node 20 and 22 such
// a context has no Symbol.dispose.
const { readFileSync } = require('node:fs');
const { createRequire } = require('node:module');
const { dirname } = require('node:path');
const { createContext, runInContext } = require('node:vm');

const GLOBALS = [
  ...['AbortController', 'AbortSignal', 'ArrayBuffer', 'Buffer', 'TextDecoder', 'TextEncoder', 'URL', 'Uint8Array'],
  ...['clearTimeout', 'console', 'fetch', 'performance', 'process', 'queueMicrotask', 'setImmediate', 'setTimeout'],
];
const context = createContext(Object.fromEntries(GLOBALS.map((name) => [name, globalThis[name]])));
const loaded = new Map();

function load(path) {
  if (loaded.has(path)) return loaded.get(path).exports;
  const module = { exports: {} };
  loaded.set(path, module);
  const outside = createRequire(path);
  const inside = (name) => {
    const found = /^(\.|@x\/)/.test(name) && outside.resolve(name);
    return /\.c?js$/.test(found) ? load(found) : outside(name);
  };
  inside.resolve = outside.resolve;
  const body = `(function (exports, require, module, __filename, __dirname) {${readFileSync(path, 'utf8')}\n})`;
  const importModuleDynamically = (name) => import(name);
  runInContext(body, context, { filename: path, importModuleDynamically })(
    module.exports,
    inside,
    module,
    path,
    dirname(path),
  );
  return module.exports;
}

const { loadModel, Tensor } = load(createRequire(`${process.cwd()}/x.js`).resolve('@x/candle'));
const dispose = runInContext('Symbol.dispose', context);
if (typeof dispose !== 'symbol' || !Tensor.prototype[dispose]) throw new Error('tensors cannot be used with using');
(async () => {
  const model = await loadModel('model.gguf', { device: 'cpu', maxContext: 64 });
  const text = await model.generate('Once upon a time', { maxTokens: 4, temperature: 0 }).text();
  model[dispose]();
  if (text !== process.argv[2]) throw new Error(text);
})();
