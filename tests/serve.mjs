import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { gzipSync } from 'node:zlib';

const types = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
};

/**
 * A folder as a plain file server gives it, on a port of this machine: below `path`, and nothing around it. `compressed`: as hosts do.
 * `root` is the address of its first page, with a slash at its end; `served` are the files that were asked for.
 */
export async function serve(folder, { path = '/', compressed = false } = {}) {
  const served = new Set();
  const server = createServer(async (request, response) => {
    const name = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname);
    const below = name.startsWith(path) ? name.slice(path.length) : undefined;
    const file = below === '' || below?.endsWith('/') ? `${below}index.html` : below;
    try {
      if (file === undefined || normalize(file).startsWith('..')) throw new Error('outside');
      const body = await readFile(join(folder, file));
      served.add(file);
      const head = { 'Content-Type': types[extname(file)] ?? 'application/octet-stream' };
      if (compressed) response.writeHead(200, { ...head, 'Content-Encoding': 'gzip' }).end(gzipSync(body));
      else response.writeHead(200, head).end(body);
    } catch {
      response.writeHead(404).end('not here');
    }
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return { root: `http://127.0.0.1:${server.address().port}${path}`, served, close: () => void server.close() };
}
