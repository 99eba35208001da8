import { ARRIVAL, bar, expect, settled, test, verdict } from './fixtures';
import { trapping } from './trapping';

test.use({ tolerated: [/wasm|WebAssembly|Aborted|unreachable|instantiation|500/i] });

test('a trap in the core is caught and reported, and a new worker goes on', async ({ page, site }) => {
  let trapped = 0;
  await page.route('**/*.wasm', async (route) => {
    trapped++;
    const body = trapping(await (await route.fetch()).body());
    await route.fulfill({ body, contentType: 'application/wasm' });
  });
  await page.goto(site.root + ARRIVAL);
  await expect(verdict(page)).toContainText('The estimate broke off');
  await expect(page.locator('.verdict')).toContainText('unreachable');
  expect(trapped).toBeGreaterThanOrEqual(3); // a new worker for each method
  await page.unroute('**/*.wasm');
  await page.getByRole('button', { name: 'Try again' }).click();
  await settled(page);
  await expect(verdict(page)).toContainText('GiB');
  await expect(page.locator('button.bar').nth(2)).toBeVisible();
});

test('a core that does not load is reported, and tried again with the next change', async ({ page, site }) => {
  await page.route('**/*.wasm', (route) => route.fulfill({ status: 500, body: 'no' }));
  await page.goto(site.root + ARRIVAL);
  await expect(verdict(page)).toContainText('The estimate broke off');
  await page.unroute('**/*.wasm');
  await page.getByLabel('Micro-batch', { exact: true }).fill('2');
  await expect(bar(page, 'FSDP2')).toBeVisible();
  await expect(verdict(page)).toContainText('GiB');
});

test('the page answers while the core works', async ({ page, site }) => {
  await page.goto(site.root);
  await settled(page);
  const input = page.getByLabel('Sequence', { exact: true });
  // Faster than any estimate: only the last one counts.
  for (const length of ['512', '1024', '4096', '8192', '1536']) await input.fill(length);
  await expect(input).toHaveValue('1536');
  await settled(page);
  const said = await verdict(page).innerText();
  await page.reload();
  await settled(page);
  await expect(verdict(page)).toHaveText(said);
});

test('the helper that makes a core trap makes a valid module', () => {
  const wasm = Buffer.from('0061736d01000000010401600000030201000a040102000b', 'hex');
  expect(WebAssembly.validate(new Uint8Array(trapping(wasm)))).toBe(true);
  expect(trapping(wasm).length).toBe(wasm.length + 1);
});
