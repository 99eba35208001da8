import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { bar, expect, expectAccessible, open, test, verdict } from './fixtures';
import { dist, serve } from './site';

test('the answer is there before anything is touched', async ({ page, site }) => {
  await open(page, site);
  await expect(verdict(page)).toContainText(/fits|fit:|does not fit/);
  await expect(verdict(page)).toContainText('GiB');
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
  for (const method of ['One GPU', 'DDP × 8', 'FSDP2 × 8']) await expect(bar(page, method)).toContainText('GiB');
  await expect(page.locator('.three dt')).toHaveText(['Allocated', 'Reserved', 'nvidia-smi shows', 'A step takes', 'Host memory']);
  await expect(page).toHaveURL(site.root);
});

test('the rows of the ledger sum to the total, to the byte', async ({ page, site }) => {
  await open(page, site);
  await page.getByLabel('exact bytes').check();
  const bytes = async (cells: string) =>
    (await page.locator(cells).allTextContents()).map((text) => Number(text.replaceAll(',', ''))).reduce((sum, value) => sum + value, 0);
  expect(await bytes('.ledger .category .number')).toBe(await bytes('.ledger tfoot .number'));
  for (const button of await page.locator('.ledger .category button').all()) await button.click();
  const folded = page.locator('.ledger tbody button', { hasText: 'others' });
  while ((await folded.count()) > 0) await folded.first().click();
  const overhead = await bytes('.ledger tbody:has(.unopened) .number'); // has no rows below it
  expect((await bytes('.ledger .module .number')) + overhead).toBe(await bytes('.ledger tfoot .number'));
});

const CORE = /\.wasm$|\/worker-[^/]*\.js$/; // the worker is the core's glue, and little else

function gzipped(files: Iterable<string>): { file: string; bytes: number }[] {
  return [...files].map((file) => ({ file, bytes: gzipSync(readFileSync(join(dist, file)), { level: 9 }).length }));
}

const sum = (sizes: { bytes: number }[]) => sizes.reduce((total, { bytes }) => total + bytes, 0);
const listed = (sizes: { file: string; bytes: number }[]) => [...sizes.map(({ file, bytes }) => `${bytes} ${file}`), `${sum(sizes)} in all`].join('\n');

test('150 kB are enough for the first view, 52 kB of them the page, and it does not wait for the core', async ({ page }, info) => {
  const site = await serve('/first/view/');
  // The core stays away until the view is complete: what it waits for is then all that was served.
  let release = () => {};
  const complete = new Promise<void>((resolve) => (release = resolve));
  await page.route(CORE, async (route) => {
    await complete;
    await route.continue();
  });
  await page.addInitScript(() => {
    window.Worker = class extends Worker {
      constructor(url: string | URL, options?: WorkerOptions) {
        super(url, options);
        performance.mark('worker started');
      }
    };
    const observer = new MutationObserver(() => {
      if (!document.querySelector('.verdict[aria-busy="false"] p:not(.waiting)')) return;
      if (document.querySelectorAll('button.bar').length < 3) return;
      observer.disconnect();
      requestAnimationFrame(() => performance.mark('painted'));
    });
    observer.observe(document, { subtree: true, childList: true, attributes: true });
  });
  await open(page, site);
  await expect(verdict(page)).toContainText('GiB');
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
  const sizes = gzipped(site.served);
  const report = listed(sizes);
  await info.attach('sizes', { body: report });
  console.log(report);
  expect(sizes.filter(({ file }) => CORE.test(file))).toEqual([]);
  expect(site.served).not.toContain('presets/index.json');
  expect(sum(sizes), report).toBeLessThanOrEqual(150_000);
  expect(sum(sizes.filter(({ file }) => !file.endsWith('.json'))), report).toBeLessThanOrEqual(52_000);

  // Who only reads does without the core; it comes with the first sign that someone does more, before anything is asked of it.
  await page.waitForTimeout(1000);
  expect(gzipped(site.served).filter(({ file }) => CORE.test(file))).toEqual([]);
  const wasm = page.waitForResponse(/\.wasm$/);
  release();
  await page.mouse.move(200, 200);
  expect((await wasm).status()).toBe(200);
  const marks = await page.evaluate(() => performance.getEntriesByType('mark').map(({ name }) => name)); // in their order in time
  expect(marks[0]).toBe('painted');
  expect(new Set(marks.slice(1))).toEqual(new Set(['worker started']));
  site.close();
});

test('176 kB are enough for the part of the core that an ordinary question needs', async ({}, info) => {
  const sizes = gzipped(readdirSync(join(dist, 'assets')).map((file) => `assets/${file}`).filter((file) => CORE.test(file)));
  const report = listed(sizes);
  await info.attach('sizes', { body: report });
  console.log(report);
  const [first, ...others] = sizes.filter(({ file }) => /llmem-[^.]*\.wasm$/.test(file));
  expect(others).toEqual([]);
  expect(first?.bytes, report).toBeLessThanOrEqual(176_000); // the goal is 120 kB: tests/contract
});

test('the site works at the root of a host too', async ({ page }) => {
  const site = await serve('/');
  await open(page, site);
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
  site.close();
});

for (const colorScheme of ['light', 'dark'] as const) {
  for (const width of [390, 1280]) {
    test(`axe finds nothing: ${colorScheme}, ${width} px`, async ({ page, site }) => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 844 });
      await open(page, site, '#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=8&nonsense=1');
      await page.evaluate(() => document.querySelectorAll('details').forEach((details) => (details.open = true)));
      await page.getByRole('button', { name: 'Embed' }).click();
      await page.locator('.ledger .category button').first().click();
      await expectAccessible(page);
    });

    test(`nothing is wider than the page: ${colorScheme}, ${width} px`, async ({ page, site }) => {
      await page.setViewportSize({ width, height: 844 });
      await open(page, site);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
    });
  }
}

test('in forced colours patterns tell the categories apart', async ({ page, site }) => {
  await page.emulateMedia({ forcedColors: 'active' });
  await open(page, site);
  await expect(page.locator('.segments .texture').first()).toHaveCSS('display', 'inline');
});
