// VS Code as a person sees it: lens, menu, preview, undo, evidence in light and dark, ghost text; with screenshots.
// `node vscode_ui.mjs URL RESULTS PICTURES`. Each step is `ok` or says what failed.
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { axe, open } from './browser.mjs';

const [base, workspace, results, pictures] = process.argv.slice(2);
const engine = process.env.DICE_TEST_ENGINE;
const { page, close } = await open({ width: 1400, height: 860 });
const said = {};
page.setDefaultTimeout(40_000);

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

async function untilLines(what, wanted = true) {
  const end = Date.now() + 40_000;
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
  const end = Date.now() + 40_000;
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

const steps = {
  async lens() {
    await page.goto(url('saxpy.cu'));
    await lens('DICE: find faster').waitFor();
    await page.keyboard.press('Control+b');
  },

  async progress_and_status() {
    writeFileSync(path.join(engine, 'hold'), '');
    await lens('DICE: find faster').click();
    await lens('DICE: checking 1/8').waitFor();
    await page.locator('.statusbar-item', { hasText: /DICE (decoding|checking)/ }).first().waitFor();
    rmSync(path.join(engine, 'hold'));
    await lens('DICE: 2.31x verified').waitFor();
    await page.locator('.notification-toast .codicon-notifications-clear').first().click({ timeout: 2000 }).catch(() => {});
    await picture('vscode-lens.png');
  },

  async menu_preview_apply_undo() {
    await page.locator('.view-line', { hasText: 'alpha * lhs' }).first().click();
    await page.keyboard.press('Control+.');
    const menu = page.locator('.action-widget');
    await menu.getByText('Preview: Rewrite `axpb`: 2.31x').waitFor();
    await picture('vscode-menu.png');
    await menu.getByText('Preview: Rewrite `axpb`: 2.31x').click();
    await page.locator('.monaco-diff-editor').first().waitFor();
    await untilLines('fmaf');
    await picture('vscode-preview.png');
    await page.locator('.editor-actions [aria-label^="Apply this rewrite"]').first().click();
    await page.locator('.monaco-diff-editor').first().waitFor({ state: 'detached' });
    await untilLines('fmaf');
    await page.keyboard.press('Control+z');
    await untilLines('fmaf', false);
    await untilLines('dst[k] = alpha * lhs[k] + rhs[k];');
  },

  async evidence_in_light_and_dark() {
    await lens('DICE: 2.31x verified').waitFor();
    await page.locator('.view-line', { hasText: 'alpha * lhs' }).first().click();
    await command('DICE: Show the evidence');
    const frame = await evidenceFrame();
    await frame.locator('svg').first().waitFor();
    for (const [name, scheme] of [['light', 'light'], ['dark', 'dark']]) {
      await page.emulateMedia({ colorScheme: scheme });
      await frame.locator(`body.vscode-${name}`).waitFor();
      await picture(`vscode-evidence-${name}.png`);
      const found = await serious(frame);
      if (found.length) throw new Error(found.join('\n'));
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await frame.getByRole('button', { name: 'Code of candidate 1' }).click();
    await frame.getByText('one fused multiply-add').first().waitFor();
  },

  async ghost_text() {
    await page.goto(url('typing.cu'));
    await lens('DICE: find faster').waitFor();
    await page.locator('.view-line', { hasText: 'if (k < count)' }).first().click();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('End');
    await page.keyboard.type('dst[k] =', { delay: 40 });
    await page.locator('[class*=ghost-text]').first().waitFor();
    await picture('vscode-ghost.png');
    await page.keyboard.type(' x');
    await page.locator('[class*=ghost-text]').first().waitFor({ state: 'detached' });
    await page.keyboard.press('Backspace');
    await page.keyboard.press('Backspace');
    await page.locator('[class*=ghost-text]').first().waitFor();
    await page.keyboard.press('Tab');
    await untilLines('dst[k] = alpha * lhs[k] + rhs[k];');
  },

  /** Ends when the test has used the same engine from another editor. */
  async shared_engine() {
    writeFileSync(path.join(engine, 'shared'), '');
    await page.goto(url('emoji.cu'));
    await lens('DICE: find faster').click();
    await lens('DICE: 2.31x verified').waitFor();
  },
};

for (const [name, step] of Object.entries(steps)) {
  try {
    await step();
    said[name] = 'ok';
  } catch (error) {
    said[name] = String(error.stack ?? error);
    await page.screenshot({ path: `${results}.${name}.png` });
  }
  rmSync(path.join(engine, 'hold'), { force: true });
}
writeFileSync(`${results}.part`, JSON.stringify(said, null, 2));
renameSync(`${results}.part`, results);
await close();
