// A headless Chromium for the VS Code tests. `import { open } from './browser.mjs'`
import { createRequire } from 'node:module';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const clients = path.join(import.meta.dirname, '..', '..', '.editors', 'code', 'node_modules');
const require = createRequire(path.join(clients, 'anchor.js'));
const { chromium } = require('playwright-core');
export const axe = require.resolve('axe-core/axe.min.js');

/** A page in a fresh profile; `close` ends the browser and forgets the profile. */
export async function open({ dark = false, width = 1280, height = 820 } = {}) {
  const profile = mkdtempSync(path.join(tmpdir(), 'dice-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.DICE_CHROMIUM ?? '/usr/bin/chromium',
    headless: true,
    viewport: { width, height },
    colorScheme: dark ? 'dark' : 'light',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  const page = context.pages()[0] ?? (await context.newPage());
  return { page, close: async () => { await context.close(); rmSync(profile, { recursive: true, force: true }); } };
}
