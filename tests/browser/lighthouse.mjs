// Lighthouse over the built site, served compressed as hosts do: nothing to complain of in accessibility and best practices on a desktop and
// on a phone, and performance of 95 on a desktop. A busy machine only ever makes it slower, so the best of a few runs counts.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import { serve } from '../serve.mjs';

const web = fileURLToPath(new URL('../../web/', import.meta.url));
// Not a dependency of the page's: it asks for the latest of two lists, which no lock file can hold.
const VERSION = '12.8.2';
const tools = fileURLToPath(new URL('../../build/lighthouse/', import.meta.url));
if (!existsSync(join(tools, 'node_modules/lighthouse'))) {
  mkdirSync(tools, { recursive: true });
  writeFileSync(join(tools, 'package.json'), '{"private": true}');
  execFileSync('npm', ['install', '--no-audit', '--no-fund', `lighthouse@${VERSION}`], { cwd: tools, stdio: 'inherit' });
}
const resolve = createRequire(join(tools, 'package.json')).resolve;
const load = (name) => import(pathToFileURL(resolve(name)).href);
const { default: lighthouse, desktopConfig } = await load('lighthouse');
const { launch } = await import(pathToFileURL(createRequire(resolve('lighthouse')).resolve('chrome-launcher')).href);

const RUNS = 3;
const TARGETS = {
  desktop: { performance: 95, accessibility: 100, 'best-practices': 100 },
  phone: { accessibility: 100, 'best-practices': 100 }, // its performance is for a processor slowed down four times: printed
};
async function scores(address, kind) {
  const chrome = await launch({ chromePath: process.env.CHROMIUM ?? '/usr/bin/chromium', chromeFlags: ['--headless=new', '--no-sandbox'] });
  try {
    const { lhr } = await lighthouse(address, { port: chrome.port, logLevel: 'error' }, kind === 'desktop' ? desktopConfig : undefined);
    const failed = Object.values(lhr.audits).filter(({ score, scoreDisplayMode }) => score === 0 && scoreDisplayMode === 'binary');
    return {
      of: Object.fromEntries(Object.entries(lhr.categories).map(([name, { score }]) => [name, Math.round(score * 100)])),
      why: failed.map(({ id }) => id).join(', '),
    };
  } finally {
    chrome.kill();
  }
}

const site = await serve(join(web, 'dist'), { compressed: true });
let passed = 0, failed = 0;
for (const [kind, targets] of Object.entries(TARGETS)) {
  const best = {};
  let why = '';
  for (let run = 0; run < RUNS; ++run) {
    const result = await scores(site.root, kind);
    for (const [name, score] of Object.entries(result.of)) best[name] = Math.max(best[name] ?? 0, score);
    why = result.why;
    if (Object.entries(targets).every(([name, target]) => best[name] >= target)) break;
  }
  console.log(kind, JSON.stringify(best));
  for (const [name, target] of Object.entries(targets)) {
    if (best[name] >= target) ++passed;
    else {
      ++failed;
      console.log(`${kind}: ${name} ${best[name]}, not ${target}; audits that failed: ${why}`);
    }
  }
}
site.close();
console.log(`lighthouse: ${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
