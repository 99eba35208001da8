import { defineConfig } from '@playwright/test';

// Run from web/ with `npm run test:browser`, after `npm run build`.
export default defineConfig({
  testDir: '.',
  outputDir: 'results',
  fullyParallel: true,
  workers: 2,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  forbidOnly: Boolean(process.env.CI),
  reporter: 'list',
  use: {
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-background-networking', '--disable-component-update'],
    },
    screenshot: 'only-on-failure',
    // Requests that a service worker answers are none that a test could see or change; offline.spec.ts allows it.
    serviceWorkers: 'block',
  },
});
