// One VS Code window in a browser, and what a person does and sees there.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { axe, open } from './browser.mjs';

/** Wait for a condition; a function of this name tells what it waited for when it was in vain. */
export async function until(what, name, seconds = 90) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await what();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${seconds} s in vain for: ${name}`);
    await sleep(100);
  }
}

/** `base` is the server's address, `workspace` its folder, `pictures` where screenshots go. */
export async function window(base, workspace, pictures) {
  const { page, close } = await open({ width: 1400, height: 860 });
  page.setDefaultTimeout(90_000);

  const url = (file) => {
    const remote = `vscode-remote://${new URL(base).host}${workspace}/${file}`;
    return `${base}/?folder=${workspace}&payload=${encodeURIComponent(JSON.stringify([['openFile', remote]]))}`;
  };
  const lens = (text) => page.locator('.codelens-decoration', { hasText: text }).first();
  /** A picture of the window at rest: two in a row are the same. */
  const picture = async (name) => {
    await page.mouse.move(700, 852); // the status bar: nothing there changes its looks
    let before = Buffer.alloc(0);
    for (let tries = 0; tries < 20; tries += 1) {
      const now = await page.screenshot({ path: path.join(pictures, name), animations: 'disabled', caret: 'hide' });
      if (now.equals(before)) return;
      before = now;
      await sleep(200);
    }
  };
  const lines = async () => (await page.locator('.editor-instance .view-line').allInnerTexts()).join('\n').replaceAll('\u00a0', ' ');

  /** Do something until its effect is there: what is clicked may be drawn anew at that moment. */
  async function insist(act, effect, name) {
    for (let tries = 0; tries < 6; tries += 1) {
      await act().catch(() => {});
      if (await effect.waitFor({ timeout: 15_000 }).then(() => true, () => false)) return;
    }
    throw new Error(`in vain: ${name}`);
  }

  const clickLens = (text, then) =>
    insist(() => lens(text).click({ timeout: 5000 }), lens(then), `a click on the lens ${text}`);

  async function untilLines(what, wanted = true) {
    await until(async () => (await lines()).includes(what) === wanted, `${what} ${wanted ? 'in' : 'gone from'} the text`)
      .catch(async (error) => { throw new Error(`${error.message}\n${await lines()}`); });
  }

  /** Put the cursor behind the last letter of the line that contains `text`. */
  async function cursor(text) {
    await page.locator('.view-line', { hasText: text }).first().click();
    await page.keyboard.press('End');
  }

  /** A command by its title. The list closes when something else takes the focus: then it is opened again. */
  async function command(title) {
    const input = page.locator('.quick-input-widget input').first();
    const row = page.locator('.quick-input-list .monaco-list-row', { hasText: title }).first();
    let problem;
    for (let tries = 0; tries < 6; tries += 1) {
      try {
        await page.keyboard.press('F1');
        await input.fill(`>${title}`, { timeout: 10_000 });
        return await row.click({ timeout: 10_000 });
      } catch (error) {
        problem = error;
      }
    }
    throw problem;
  }

  /** The quick-fix menu at the cursor, with an entry; asked for again while the server comes up. */
  async function menu(entry) {
    const found = page.locator('.action-widget').getByText(entry).first();
    await insist(async () => {
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+.');
    }, found, `a menu with ${entry}`);
    return found;
  }

  /** Open the preview of the first rewrite by the menu, as the keyboard does. */
  async function preview(title) {
    await menu(`Preview: Rewrite ${title}`);
    await page.locator('.action-widget .focused', { hasText: 'Preview: Rewrite' }).waitFor();
    await page.keyboard.press('Enter');
    await page.locator('.monaco-diff-editor').first().waitFor();
  }

  async function applyPreview() {
    await page.locator('.editor-actions [aria-label^="Apply this rewrite"]').first().click();
    await page.locator('.monaco-diff-editor').first().waitFor({ state: 'detached' });
  }

  async function save() {
    await page.keyboard.press('Control+s');
    await page.locator('.tab.active.dirty').waitFor({ state: 'detached' });
  }

  /** The frame inside the webview that holds the evidence page. */
  async function evidenceFrame() {
    return until(async () => {
      for (const frame of page.frames()) {
        if (await frame.locator('#dice-evidence h1').count().catch(() => 0)) return frame;
      }
      return undefined;
    }, 'the evidence page');
  }

  async function serious(frame) {
    await frame.evaluate(readFileSync(axe, 'utf8'));
    const found = await frame.evaluate(() => globalThis.axe.run('main'));
    return found.violations.filter((one) => ['serious', 'critical'].includes(one.impact))
      .map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`);
  }

  return {
    page, close, url, lens, clickLens, picture, lines, untilLines, cursor, command, menu, preview, applyPreview, save, insist, evidenceFrame, serious,
  };
}
