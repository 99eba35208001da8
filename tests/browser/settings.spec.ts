import { expect, expectAccessible, open, settled, test, verdict } from './fixtures';
import type { Page } from '@playwright/test';

async function openGroup(page: Page, name: string): Promise<void> {
  if (!(await page.locator('.groups').isVisible())) await page.getByRole('heading', { name: 'All settings' }).click();
  await page.locator('.group > summary', { hasText: name }).click();
}

test('every setting of the wire format is folded away, and explains itself in place', async ({ page, site }) => {
  await open(page, site);
  await page.getByRole('heading', { name: 'All settings' }).click();
  const groups = page.locator('.group');
  await expect(groups).not.toHaveCount(0);
  await groups.evaluateAll((all) => all.forEach((one) => ((one as HTMLDetailsElement).open = true)));
  const helps = page.locator('.group button.help');
  expect(await helps.count()).toBeGreaterThan(80);
  await page.getByRole('button', { name: 'About Expert degree' }).click();
  await expect(page.locator('#control-expert_degree-help')).toContainText('experts of a layer');
  await expectAccessible(page);
});

test('a setting that cannot matter now says why, and a changed one is in the link and the fold', async ({ page, site }) => {
  await open(page, site);
  await openGroup(page, 'Adapters');
  await expect(page.locator('.control', { hasText: 'DoRA' }).first()).toContainText('Matters with LoRA or QLoRA only.');
  await openGroup(page, 'Allocator');
  await page.getByLabel('Allocator segments', { exact: true }).selectOption('true');
  await expect(page).toHaveURL(/expandable_segments=true/);
  await expect(page.locator('.group > summary', { hasText: 'Allocator' })).toContainText('Allocator segments true');
  await page.reload();
  await settled(page);
  await expect(page.locator('.all-settings .value')).toContainText('Allocator segments');
});

test('LoRA and QLoRA are one click, and what the core cannot do of them is named at the methods', async ({ page, site }) => {
  await open(page, site);
  const full = await verdict(page).innerText();
  await page.getByLabel('QLoRA').check();
  await expect(page).toHaveURL(/method=lora.*bits=4/);
  await settled(page);
  expect(await verdict(page).innerText()).not.toBe(full);
  await expect(page.locator('button.bar', { hasText: 'One GPU' })).toContainText('GiB');
  await page.locator('.absent > summary').click();
  await expect(page.locator('.absent dd').first()).not.toBeEmpty();
});

test('one’s own mix of degrees is a bar of its own', async ({ page, site }) => {
  await open(page, site, '#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=8&data=custom&tensor_degree=4');
  await expect(page.locator('button.bar', { hasText: 'Own mix × 8' })).toContainText('GiB');
  await expect(page.locator('#details-title')).toHaveText('Own mix × 8, in detail');
});

test('undo and redo go back and forth', async ({ page, site }) => {
  await open(page, site);
  const before = page.url();
  await page.getByLabel('Checkpointing', { exact: true }).selectOption('full');
  await page.getByLabel('Optimizer', { exact: true }).selectOption('sgd');
  await expect(page).toHaveURL(/optimizer=sgd/);
  await page.getByRole('button', { name: 'Undo' }).click();
  await expect(page).toHaveURL(/checkpointing=full$/);
  await page.keyboard.press('Control+z');
  await expect(page.getByLabel('Checkpointing', { exact: true })).toHaveValue('none');
  await expect(page.getByRole('button', { name: 'Undo' })).toBeDisabled();
  await page.keyboard.press('Control+Shift+z');
  await expect(page.getByLabel('Checkpointing', { exact: true })).toHaveValue('full');
  expect(before).toBe(site.root);
});

test('the state survives a reload, is offered to who comes back, and a link wins', async ({ page, site }) => {
  await open(page, site);
  await page.getByLabel('Sequence', { exact: true }).fill('1024');
  await expect(page).toHaveURL(/sequence=1024/);
  await page.reload();
  await expect(page.getByLabel('Sequence', { exact: true })).toHaveValue('1024');
  await page.goto('about:blank');
  await open(page, site);
  await expect(page.getByLabel('Sequence', { exact: true })).toHaveValue('2048');
  await page.getByRole('link', { name: 'Go on where you left off' }).click();
  await expect(page.getByLabel('Sequence', { exact: true })).toHaveValue('1024');
  await page.goto(`${site.root}#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=8&sequence=512`);
  await expect(page.getByLabel('Sequence', { exact: true })).toHaveValue('512');
});

test('a method that the core refuses says why where its details would be, and leads to the controls', async ({ page, site }) => {
  await open(page, site, '#v=1&model=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&gpus=8&data=tensor&loop=trainer');
  await expect(page.locator('#details-title')).toHaveText(/^Tensor.* has no estimate here$/);
  await page.locator('.details').getByRole('button', { name: /Go to the control for \/training\/loop/ }).click();
  await expect(page.locator('#control-loop')).toBeFocused();
  await page.getByRole('button', { name: 'Show the best method' }).click();
  await expect(page.locator('#details-title')).toHaveText('FSDP1 × 8, in detail');
});
