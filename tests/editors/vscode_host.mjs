// Opens VS Code's own server in a browser so that the extension host runs the tests of editors/vscode/test, and waits for
// their results. `node vscode_host.mjs URL RESULTS SECONDS`
import { existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { open } from './browser.mjs';

const [url, results, seconds] = process.argv.slice(2);
const { page, close } = await open();
try {
  await page.goto(url);
  const end = Date.now() + Number(seconds) * 1000;
  while (!existsSync(results) && Date.now() < end) await sleep(200);
  if (!existsSync(results)) {
    await page.screenshot({ path: `${results}.png` });
    console.error(`no results after ${seconds} s; the window: ${results}.png`);
    process.exitCode = 1;
  }
} finally {
  await close();
}
