// The core, in a worker of its own: text in, envelope out. It knows nothing of the page.
import createCore from 'llmem-core';
import binary from 'llmem-core-binary?url';
import rest from 'llmem-core-rest?url';

export interface Request {
  id: number;
  call: Call;
  /** A spec, and where the call takes one a question about it; texts in JSON. */
  args: string[];
}

/** What the core can be called for. */
export type Call = keyof Awaited<ReturnType<typeof createCore>>;

/** `crash`: the core did not load or trapped. This worker's memory can then not be trusted any more. */
export type Response = { id: number; envelope: string } | { id: number; crash: string };

const load = () => createCore({ locateFile: (file) => new URL(file === 'llmem.wasm' ? binary : rest, import.meta.url).href });
// Without a listener here a core that fails to load is reported as unhandled before the first request asks for it.
const early = load().catch(() => undefined);
let core: ReturnType<typeof load> | undefined;

async function respond({ id, call, args }: Request): Promise<Response> {
  try {
    // What could not be had while nobody asked for it may be there by now.
    core ??= early.then((loaded) => loaded ?? load());
    // Which texts a call takes, only who calls knows; Embind checks their number.
    const called = (await core)[call] as (...texts: string[]) => string;
    return { id, envelope: called(...args) };
  } catch (error) {
    return { id, crash: error instanceof Error ? error.message : String(error) };
  }
}

self.addEventListener('message', async (event: MessageEvent<Request>) => {
  self.postMessage(await respond(event.data));
});
