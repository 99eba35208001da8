import { ARRIVAL, expect, open, settled, test } from './fixtures';

/** The sum of all layout shifts that no input explains, from now on. */
async function shifts(page: import('@playwright/test').Page): Promise<() => Promise<number>> {
  await page.evaluate(() => {
    Object.assign(window, { shifted: 0 });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as (PerformanceEntry & { value: number; hadRecentInput: boolean })[]) {
        if (!entry.hadRecentInput) (window as unknown as { shifted: number }).shifted += entry.value;
      }
    }).observe({ type: 'layout-shift', buffered: false });
  });
  return () => page.evaluate(() => (window as unknown as { shifted: number }).shifted);
}

for (const link of ['', ARRIVAL]) {
  test(`nothing moves after the first result: ${link === '' ? 'on arrival' : 'with a link'}`, async ({ page, site }) => {
    await open(page, site, link);
    const shifted = await shifts(page);
    await page.waitForTimeout(1500); // the core comes, the service worker is registered
    expect(await shifted()).toBe(0);
  });
}

test('a change moves nothing but what it changes', async ({ page, site }) => {
  await open(page, site);
  const top = () => page.locator('.details').evaluate((element) => element.getBoundingClientRect().top + scrollY);
  const before = await top();
  await page.getByLabel('Micro-batch', { exact: true }).fill('2');
  await settled(page);
  expect(Math.abs((await top()) - before)).toBeLessThan(60); // a line more in the verdict, where it says where it fails
});

for (const width of [390, 1280]) {
  test(`right to left nothing is cut off: ${width} px`, async ({ page, site }) => {
    await page.setViewportSize({ width, height: 844 });
    await open(page, site);
    await page.evaluate(() => (document.documentElement.dir = 'rtl'));
    const { left, right } = await page.locator('.verdict').evaluate((element) => element.getBoundingClientRect());
    expect(left).toBeGreaterThanOrEqual(0);
    expect(right).toBeLessThanOrEqual(width);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(width);
  });
}

test('with reduced motion nothing slides', async ({ page, site }) => {
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await open(page, site);
  await expect(page.locator('.segments rect').first()).toHaveCSS('transition-duration', '0s');
});

test('a model has a page of its own that leads to its answer', async ({ page, site }) => {
  await page.goto(`${site.root}models/index.html`);
  await page.getByRole('link', { name: 'Qwen/Qwen2.5-0.5B', exact: true }).click();
  await expect(page.getByRole('heading', { name: 'Qwen/Qwen2.5-0.5B: will it fit?' })).toBeVisible();
  await page.getByRole('link', { name: /QLoRA/ }).click();
  await settled(page);
  await expect(page.getByRole('combobox', { name: 'Model' })).toHaveValue('Qwen/Qwen2.5-0.5B');
  await expect(page.getByLabel('QLoRA')).toBeChecked();
  await expect(page.locator('.notice')).toHaveCount(0);
});
