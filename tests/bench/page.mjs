// From a change of an input to the new chart, in the built page: Llama-3.1-8B on 7 GPUs, which is 9 methods (tensor parallelism needs a
// divisor of the heads).
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { serve } from '../serve.mjs';

const web = fileURLToPath(new URL('../../web/', import.meta.url));
const { chromium } = createRequire(join(web, 'package.json'))('@playwright/test');

const budget = 100;  // ms
const slack = 4;  // as in bench.mjs
const link = '#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=7';
const sequences = [1024, 1536, 512, 1280, 768, 1792, 640, 896, 1152, 1408, 576];

const site = await serve(join(web, 'dist'));

// In the page: types a number, waits for the frame in which all bars are new.
async function change(sequence) {
  const frame = () => new Promise((painted) => requestAnimationFrame(painted));
  const begin = performance.now();
  const input = document.activeElement;
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(input, String(sequence));
  input.dispatchEvent(new Event('input', { bubbles: true }));
  input.dispatchEvent(new Event('change', { bubbles: true }));
  const busy = (is) => document.querySelector(`.verdict[aria-busy="${is}"]`) !== null;
  while (!busy(true)) await frame();
  while (!busy(false)) await frame();
  return performance.now() - begin;
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
await page.goto(site.root + link);
await page.locator('.verdict[aria-busy="false"]:not(:has(.waiting))').waitFor();
await page.getByLabel('Sequence', { exact: true }).focus();
const times = [];
for (const sequence of sequences) {
  times.push(await page.evaluate(change, sequence));
  await page.waitForTimeout(300);
}
const bars = await page.locator('button.bar').count();
await browser.close();
site.close();

const median = times.sort((a, b) => a - b)[Math.floor(times.length / 2)];
console.log(`input to chart, ${bars} methods: ${median.toFixed(0)} ms`);
if (median > budget) console.log(`over the budget of ${budget} ms`);
const passed = bars >= 8 && median <= budget * slack;
console.log(`bench: ${passed ? 1 : 0} passed, ${passed ? 0 : 1} failed`);
process.exit(passed ? 0 : 1);
