import { expect, open, test } from './fixtures';

test.use({ tolerated: [/Content Security Policy/] });

test('the policy holds: no inline script, no other host', async ({ page, site }) => {
  await open(page, site);
  const blocked = await page.evaluate(async () => {
    const violated: string[] = [];
    document.addEventListener('securitypolicyviolation', (event) => violated.push(event.effectiveDirective));
    const script = document.createElement('script');
    script.textContent = 'window.inlineRan = true';
    document.head.append(script);
    await fetch('http://127.0.0.2:9/').catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 100));
    return { violated, inlineRan: 'inlineRan' in window };
  });
  expect(blocked.inlineRan).toBe(false);
  expect(blocked.violated).toEqual(expect.arrayContaining(['script-src-elem', 'connect-src']));
});

test('the policy holds: no eval', async ({ page, site }) => {
  await open(page, site);
  // In a handler of the page's own: what a test evaluates directly is exempt from the policy.
  await page.evaluate(() => {
    document.addEventListener('click', () => {
      try {
        document.title = String(new Function('return "evaluated"')());
      } catch {
        document.title = 'blocked';
      }
    });
  });
  await page.getByRole('heading', { name: 'LLMem' }).click();
  await expect(page).toHaveTitle('blocked');
});
