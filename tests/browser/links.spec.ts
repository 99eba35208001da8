import { bar, expect, open, settled, test, verdict } from './fixtures';
import published from './links.json';

test('the address bar follows what is changed, and leads back to it', async ({ page, site, browser }) => {
  await open(page, site);
  await page.getByLabel('Micro-batch', { exact: true }).fill('4');
  await page.getByLabel('Checkpointing', { exact: true }).selectOption('full');
  await bar(page, 'DDP').click();
  await expect(page).toHaveURL(/#v=1&model=meta-llama\/Llama-3\.1-8B&gpu=h100-sxm-80gb&gpus=8&micro_batch=4&checkpointing=full&data=ddp$/);
  await settled(page);
  const said = await bar(page, 'DDP').innerText();

  const other = await browser.newPage();
  await other.goto(page.url());
  await settled(other);
  await expect(other.getByLabel('Micro-batch', { exact: true })).toHaveValue('4');
  await expect(other.locator('#details-title')).toHaveText('DDP × 8, in detail');
  expect(await bar(other, 'DDP').innerText()).toBe(said);
  await other.close();
});

test('Copy link copies the whole link', async ({ page, site, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await open(page, site);
  await page.getByRole('button', { name: 'Copy link' }).click();
  await expect(page.getByText('Copied.')).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(
    `${site.root}#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=8`,
  );
});

test('a link edited by hand in the address bar is followed', async ({ page, site }) => {
  await open(page, site);
  const before = await verdict(page).innerText();
  await page.goto(`${site.root}#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=2&micro_batch=2`);
  await expect(page.getByLabel('Number of GPUs', { exact: true })).toHaveValue('2');
  await settled(page);
  expect(await verdict(page).innerText()).not.toBe(before);
});

for (const { what, link, complaints, settings } of published) {
  test.describe(`link: ${what}`, () => {
    test.use({ tolerated: [/404/] }); // a model that no preset has
    test('opens, and says what could not be used', async ({ page, site }) => {
      await open(page, site, link);
      for (const complaint of complaints) await expect(page.locator('.notice')).toContainText(complaint);
      await expect(page.locator('.notice li')).toHaveCount(complaints.length);
      await expect(page.getByLabel('Number of GPUs', { exact: true })).toHaveValue(String(settings.gpus));
      await expect(page).toHaveURL(site.root + link.replace('“', ''));
    });
  });
}

test.describe('a model that is not there', () => {
  test.use({ tolerated: [/404/] });
  test('is said to be unknown, and the rest of the page works', async ({ page, site }) => {
    await open(page, site, '#v=1&model=no/such-model&gpu=h100-sxm-80gb&gpus=8');
    await expect(verdict(page)).toContainText('There is no preset “no/such-model”');
    await page.getByRole('combobox', { name: 'Model' }).click();
    await page.getByRole('combobox', { name: 'Model' }).fill('Llama-3.2-1B');
    await page.getByRole('option', { name: /meta-llama\/Llama-3.2-1B/ }).first().click();
    await settled(page);
    await expect(verdict(page)).toContainText('GiB');
  });
});

test.describe('a model that cannot be estimated yet', () => {
  test.use({ tolerated: [/404/] });
  test('is said to be so', async ({ page, site }) => {
    await open(page, site, '#v=1&model=databricks/dbrx-base&gpu=h100-sxm-80gb&gpus=8');
    await expect(verdict(page)).toContainText(/databricks\/dbrx-base cannot be estimated yet: "dbrx" .*parameters only/);
  });
});

test('a card whose memory nobody knows has bars without a line', async ({ page, site }) => {
  await open(page, site, '#v=1&model=meta-llama/Llama-3.1-8B&gpu=a100-sxm-96gb&gpus=2');
  await expect(verdict(page)).toContainText(/needs .* GiB/);
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
  await expect(page.locator('.capacity')).toHaveCount(0);
});

test('while a model is on its way, no answer is given for it', async ({ page, site }) => {
  await open(page, site);
  await page.route('**/Qwen__Qwen2.5-0.5B.json', async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 1500));
    await route.continue();
  });
  const before = await bar(page, 'One GPU').innerText();
  await page.goto(`${site.root}#v=1&model=Qwen/Qwen2.5-0.5B&gpu=h100-sxm-80gb&gpus=8&micro_batch=3`);
  await expect(page.getByRole('combobox', { name: 'Model' })).toHaveValue('Qwen/Qwen2.5-0.5B');
  await page.waitForTimeout(1000); // longer than an estimate
  await expect(page.locator('.verdict')).toHaveAttribute('aria-busy', 'true');
  expect(await bar(page, 'One GPU').innerText()).toBe(before);
  await settled(page);
  expect(await bar(page, 'One GPU').innerText()).not.toBe(before);
});
