import { join } from 'node:path';
import { serve as serveFolder, type Site } from '../serve.mjs';

export type { Site };
export const dist = join(__dirname, '../../web/dist');

/** The built site, below a path of the given name. */
export const serve = (path: string): Promise<Site> => serveFolder(dist, { path });
