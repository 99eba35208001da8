import { createServer, type Server } from 'node:http';
import { readFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { extname, join, normalize } from 'node:path';

export const dist = join(__dirname, '../../web/dist');
const types: Record<string, string> = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml',
  '.webmanifest': 'application/manifest+json',
};

export interface Site {
  root: string; // the address of the page, with a slash at its end
  served: Set<string>; // files that were asked for
  close(): void;
}

/** The built site as a plain file server would serve it, under a path of the given name, and nothing around it. */
export async function serve(path: string): Promise<Site> {
  const served = new Set<string>();
  const server: Server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    const name = decodeURIComponent(pathname);
    const file = name.startsWith(path) ? name.slice(path.length) || 'index.html' : undefined;
    try {
      if (file === undefined || normalize(file).startsWith('..')) throw new Error('outside');
      const body = await readFile(join(dist, file));
      served.add(file);
      response.writeHead(200, { 'Content-Type': types[extname(file)] ?? 'application/octet-stream' });
      response.end(body);
    } catch {
      response.writeHead(404).end('not here');
    }
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  return { root: `http://127.0.0.1:${port}${path}`, served, close: () => void server.close() };
}
