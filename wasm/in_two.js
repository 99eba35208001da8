// Part of the glue (--pre-js). The core is two files (README.md): llmem.wasm holds what an ordinary question runs, llmem.rest.wasm the
// rest, fetched when a function of it is first called. For each such function split.mjs has left a placeholder in the first file's table;
// the second file, once it is there, puts the function in its place.
Module['instantiateWasm'] = (imports, receive) => {
  let first;
  const table = () => Object.values(first).find((value) => value instanceof WebAssembly.Table);
  const bytesOfRest = () => {
    if (Module['restBinary']) return Module['restBinary'];
    // The caller, compiled code, cannot wait for a promise. Only a worker may fetch bytes this way.
    const request = new XMLHttpRequest();
    request.open('GET', locateFile('llmem.rest.wasm'), false);
    request.responseType = 'arraybuffer';
    request.send();
    if (request.status !== 200) throw new Error('a part of the estimator could not be fetched');
    return request.response;
  };
  const placeholder = (slot) => (...args) => {
    new WebAssembly.Instance(new WebAssembly.Module(bytesOfRest()), { 'first': first });
    return table().get(slot)(...args);
  };
  imports['rest'] = new Proxy({}, { get: (_, slot) => placeholder(Number(slot)) });

  const fetched = async (file) => {
    const response = await fetch(locateFile(file));
    if (!response.ok) throw new Error('the estimator could not be fetched');
    return response.arrayBuffer();
  };
  const start = async () => {
    const { instance } = await WebAssembly.instantiate(wasmBinary || (await fetched('llmem.wasm')), imports);
    first = instance.exports;
    receive(instance);
  };
  start().catch(readyPromiseReject);
  return {};
};
