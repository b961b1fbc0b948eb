// One VS Code window in a browser, and what a person does and sees there.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { axe, open } from './browser.mjs';

/** `base` is the server's address, `workspace` its folder, `pictures` where screenshots go. */
export async function window(base, workspace, pictures) {
  const { page, close } = await open({ width: 1400, height: 860 });
  page.setDefaultTimeout(90_000);

  const url = (file) => {
    const remote = `vscode-remote://${new URL(base).host}${workspace}/${file}`;
    return `${base}/?folder=${workspace}&payload=${encodeURIComponent(JSON.stringify([['openFile', remote]]))}`;
  };
  const lens = (text) => page.locator('.codelens-decoration', { hasText: text }).first();
  const picture = async (name) => {
    await page.mouse.move(640, 700);
    await sleep(400);
    await page.screenshot({ path: path.join(pictures, name) });
  };
  const lines = async () => (await page.locator('.editor-instance .view-line').allInnerTexts()).join('\n').replaceAll('\u00a0', ' ');

  /** Click a lens until another one shows that it was heard: a click may fall between two drawings. */
  async function clickLens(text, then) {
    for (let tries = 0; tries < 6; tries += 1) {
      await sleep(500);
      await lens(text).click({ timeout: 5000 }).catch(() => {});
      if (await lens(then).waitFor({ timeout: 8000 }).then(() => true, () => false)) return;
    }
    throw new Error(`the lens ${text} was clicked in vain`);
  }

  async function untilLines(what, wanted = true) {
    const end = Date.now() + 90_000;
    while ((await lines()).includes(what) !== wanted) {
      if (Date.now() > end) throw new Error(`${what} ${wanted ? 'never appeared' : 'stayed'}:\n${await lines()}`);
      await sleep(100);
    }
  }

  async function command(title) {
    await page.keyboard.press('F1');
    await page.locator('.quick-input-widget input').waitFor();
    await page.keyboard.type(title);
    await page.locator('.quick-input-list .monaco-list-row', { hasText: title }).first().waitFor();
    await page.keyboard.press('Enter');
  }

  /** The frame inside the webview that holds the evidence page. */
  async function evidenceFrame() {
    const end = Date.now() + 90_000;
    while (Date.now() < end) {
      for (const frame of page.frames()) {
        if (await frame.locator('#dice-evidence h1').count().catch(() => 0)) return frame;
      }
      await sleep(200);
    }
    throw new Error('the evidence page did not appear');
  }

  async function serious(frame) {
    await frame.evaluate(readFileSync(axe, 'utf8'));
    const found = await frame.evaluate(() => globalThis.axe.run('main'));
    return found.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
      .map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`);
  }

  return { page, close, url, lens, clickLens, picture, lines, untilLines, command, evidenceFrame, serious };
}
