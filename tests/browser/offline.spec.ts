import { expect, open, settled, test, verdict } from './fixtures';

test.use({ serviceWorkers: 'allow', tolerated: [/ERR_INTERNET_DISCONNECTED|Failed to fetch|net::/] });

test('after the first visit the page works without a network', async ({ page, site, context }) => {
  await open(page, site, '#v=1&model=Qwen/Qwen2.5-0.5B&gpu=rtx-4090&gpus=2');
  // The model was fetched before the service worker was there; it is kept all the same.
  await expect
    .poll(() => page.evaluate(async () => (await caches.match('./presets/models/Qwen__Qwen2.5-0.5B.json')) !== undefined), { timeout: 20_000 })
    .toBe(true);
  await context.setOffline(true);
  await page.reload();
  await settled(page);
  await page.getByLabel('Sequence', { exact: true }).fill('1024');
  await settled(page);
  await expect(verdict(page)).toContainText('GiB');
  await page.getByRole('tab', { name: 'Timeline' }).click();
  await expect(page.getByRole('slider', { name: /Timeline/ })).toBeVisible();
});
