// Keeps this version of the site for when there is no network. tools/offline.ts fills in which files, and what the version is. A new
// version waits until no page of the old one is open any more: a page never gets files of two versions.
const VERSION = `llmem-${/* VERSION */}`;
const FILES = [/* FILES */];

self.addEventListener('install', (event) => {
  event.waitUntil(caches.open(VERSION).then((cache) => cache.addAll(FILES)));
});

self.addEventListener('activate', (event) => {
  event.waitUntil(
    (async () => {
      for (const name of await caches.keys()) if (name.startsWith('llmem-') && name !== VERSION) await caches.delete(name);
      await self.clients.claim();
    })(),
  );
});

// What a page fetched before this worker was there.
self.addEventListener('message', (event) => {
  const { keep } = event.data ?? {};
  if (!Array.isArray(keep)) return;
  event.waitUntil(caches.open(VERSION).then((cache) => cache.addAll(keep.filter((url) => isPreset(url)))));
});

self.addEventListener('fetch', (event) => {
  const { request } = event;
  if (request.method !== 'GET' || new URL(request.url).origin !== self.location.origin) return;
  event.respondWith(answer(request));
});

async function answer(request) {
  const cache = await caches.open(VERSION);
  const kept = await cache.match(request, { ignoreSearch: true });
  if (kept) return kept;
  const response = await fetch(request);
  // A model's configuration is kept once someone has looked at it.
  if (response.ok && isPreset(request.url)) await cache.put(request, response.clone());
  return response;
}

function isPreset(url) {
  const { origin, pathname } = new URL(url);
  return origin === self.location.origin && pathname.includes('/presets/');
}
