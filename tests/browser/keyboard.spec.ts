import { bar, expect, open, settled, test, verdict } from './fixtures';

test('a model is found and chosen with the keys alone', async ({ page, site }) => {
  await open(page, site);
  await page.keyboard.press('Tab'); // from a file
  await page.keyboard.press('Tab'); // the fold of the model part
  await page.keyboard.press('Tab'); // its help
  await page.keyboard.press('Tab');
  const box = page.getByRole('combobox', { name: 'Model' });
  await expect(box).toBeFocused();
  await page.keyboard.type('qwen2.5 0.5b');
  await expect(box).toHaveAttribute('aria-expanded', 'true');
  await expect(page.getByRole('option').first()).toContainText('Qwen/Qwen2.5-0.5B');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('Enter');
  await expect(box).toHaveAttribute('aria-expanded', 'false');
  await expect(box).toHaveValue(/Qwen\/Qwen2\.5-0\.5B/);
  await settled(page);
  await expect(page).toHaveURL(/model=Qwen\/Qwen2\.5-0\.5B/);
});

test('Escape leaves the model as it was', async ({ page, site }) => {
  await open(page, site);
  const box = page.getByRole('combobox', { name: 'Model' });
  await box.focus();
  await page.keyboard.type('qwen');
  await page.keyboard.press('Escape');
  await expect(box).toHaveValue('meta-llama/Llama-3.1-8B');
});

test('what the core cannot estimate is marked and cannot be chosen', async ({ page, site }) => {
  await open(page, site);
  const box = page.getByRole('combobox', { name: 'Model' });
  await box.fill('dbrx');
  const option = page.getByRole('option').first();
  await expect(option).toContainText('not yet');
  await expect(option).toHaveAttribute('aria-disabled', 'true');
  await page.keyboard.press('Enter');
  await page.keyboard.press('Escape');
  await expect(box).toHaveValue('meta-llama/Llama-3.1-8B');
});

test('Enter on a bar opens its ledger', async ({ page, site }) => {
  await open(page, site);
  await bar(page, 'One GPU').focus();
  await page.keyboard.press('Enter');
  await expect(page.locator('#details-title')).toHaveText('One GPU, in detail');
  await expect(bar(page, 'One GPU')).toHaveAttribute('aria-pressed', 'true');
  const weights = page.getByRole('button', { name: 'Weights', exact: true });
  await weights.focus();
  await page.keyboard.press('Space');
  await expect(weights).toHaveAttribute('aria-expanded', 'true');
  await expect(page.locator('.ledger code').first()).toBeVisible();
});

test('on a phone the answer comes first, and a tap opens each part', async ({ page, site }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await open(page, site);
  await expect(verdict(page)).toBeInViewport();
  await expect(page.getByRole('combobox', { name: 'Model' })).toBeHidden();
  await expect(page.locator('.part .value').first()).toContainText('meta-llama/Llama-3.1-8B · 8.03 B parameters · 32 layers');
  await page.getByRole('heading', { name: 'Model' }).click();
  await expect(page.getByRole('combobox', { name: 'Model' })).toBeVisible();
});

test('with one GPU the other methods say why they are not there', async ({ page, site }) => {
  await open(page, site);
  await page.getByLabel('Number of GPUs', { exact: true }).fill('1');
  await page.getByText('more methods without an estimate, and why').click();
  await expect(page.getByText('Needs more than one GPU.')).toBeVisible();
  await expect(page.locator('button.bar')).toHaveCount(1);
});
