// VS Code as a person sees it: lens, menu, preview, undo, evidence in light and dark, ghost text.
// `node vscode_ui.mjs URL WORKSPACE RESULTS PICTURES`. Each step is `ok` or says what failed.
import { renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { window } from './vscode_page.mjs';

const [base, workspace, results, pictures] = process.argv.slice(2);
const engine = process.env.DICE_TEST_ENGINE;
const { page, close, url, lens, clickLens, picture, untilLines, command, evidenceFrame, serious } = await window(base, workspace, pictures);
const said = {};

const steps = {
  async lens() {
    await page.goto(url('saxpy.cu'));
    await lens('DICE: find faster').waitFor();
    await page.keyboard.press('Control+b');
  },

  async progress_and_status() {
    writeFileSync(path.join(engine, 'hold'), '');
    await clickLens('DICE: find faster', 'DICE: checking 1/8');
    await page.locator('.statusbar-item', { hasText: /DICE (decoding|checking)/ }).first().waitFor();
    rmSync(path.join(engine, 'hold'));
    await lens('DICE: 2.31x verified').waitFor();
  },

  async menu_preview_apply_undo() {
    await page.locator('.view-line', { hasText: 'alpha * lhs' }).first().click();
    await page.keyboard.press('Control+.');
    const menu = page.locator('.action-widget');
    await menu.getByText('Preview: Rewrite `axpb`: 2.31x').waitFor();
    await page.locator('.action-widget .focused', { hasText: 'Preview: Rewrite' }).waitFor();
    await page.keyboard.press('Enter');
    await page.locator('.monaco-diff-editor').first().waitFor();
    await untilLines('fmaf');
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
    await clickLens('DICE: find faster', 'DICE: 2.31x verified');
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
