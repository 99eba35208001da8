import Axe from '@axe-core/playwright';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { bar, expect, open, test, verdict } from './fixtures';
import { dist, serve } from './site';

test('the answer is there before anything is touched', async ({ page, site }) => {
  await open(page, site);
  await expect(verdict(page)).toContainText(/fits|fit:|does not fit/);
  await expect(verdict(page)).toContainText('GiB');
  await expect(page.locator('button.bar')).toHaveCount(3);
  for (const method of ['One GPU', 'DDP × 8', 'FSDP2 × 8']) await expect(bar(page, method)).toContainText('GiB');
  await expect(page.locator('.three dt')).toHaveText(['Allocated', 'Reserved', 'nvidia-smi shows']);
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
  expect((await bytes('.ledger tbody tr:not(.category) .number')) + overhead).toBe(await bytes('.ledger tfoot .number'));
});

test('150 kB are enough for the first view, 120 kB of them the core, 30 kB the page', async ({ page, site }, info) => {
  site.served.clear();
  await open(page, site);
  const sizes = [...site.served].map((file) => ({ file, bytes: gzipSync(readFileSync(join(dist, file)), { level: 9 }).length }));
  const sum = (files: typeof sizes) => files.reduce((total, { bytes }) => total + bytes, 0);
  const report = [...sizes.map(({ file, bytes }) => `${bytes} ${file}`), `${sum(sizes)} in all`].join('\n');
  await info.attach('sizes', { body: report });
  console.log(report);
  const core = sizes.filter(({ file }) => /\.wasm$|\/worker-/.test(file)); // the worker is the core's glue, and little else
  expect(sum(sizes) - sum(core), report).toBeLessThanOrEqual(30_000);
  expect(sum(core), report).toBeLessThanOrEqual(120_000);
  expect(site.served).not.toContain('presets/index.json');
});

test('the site works at the root of a host too', async ({ page }) => {
  const site = await serve('/');
  await open(page, site);
  await expect(page.locator('button.bar')).toHaveCount(3);
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
      const { violations } = await new Axe({ page }).analyze();
      expect(violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`)).toEqual([]);
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
