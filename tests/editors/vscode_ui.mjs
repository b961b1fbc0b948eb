// VS Code as a person sees it: every scenario by clicks and keys.
// `node vscode_ui.mjs URL WORKSPACE RESULTS PICTURES STEPS`. Each step is `ok` or says what failed.
import { spawn } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { until, window } from './vscode_page.mjs';

const [base, workspace, results, pictures, wanted] = process.argv.slice(2);
const engine = process.env.DICE_TEST_ENGINE;
const ui = await window(base, workspace, pictures);
const { page, url, lens, clickLens, picture, lines, untilLines, cursor, command, menu, preview, applyPreview, save, evidenceFrame, serious } = ui;
const said = {};

const hold = () => writeFileSync(path.join(engine, 'hold'), '');
const release = () => rmSync(path.join(engine, 'hold'), { force: true });
const log = path.join(engine, 'requests.jsonl');
const requests = (type) =>
  (existsSync(log) ? readFileSync(log, 'utf8') : '').split('\n').filter(Boolean).map((line) => JSON.parse(line)).filter((one) => one.type === type).length;
const status = (text) => page.locator('.statusbar-item', { hasText: text }).first();

/** Open a copy of a sample, so that no step finds what another has left. */
async function open(sample, name) {
  copyFileSync(path.join(workspace, sample), path.join(workspace, name));
  await page.goto(url(name));
  await page.locator('.tab.active', { hasText: name }).waitFor();
  if (!await page.locator('.part.sidebar').isHidden()) await page.keyboard.press('Control+b');
}

async function searching(name) {
  await open('saxpy.cu', name);
  await lens('DICE: find faster').waitFor();
  hold();
  await clickLens('DICE: find faster', 'DICE: checking 1/8');
}

async function searched(name, sample = 'saxpy.cu') {
  await open(sample, name);
  await clickLens('DICE: find faster', 'DICE: 2.31x verified');
  await cursor('dst[k] = alpha');
}

const steps = {
  async lens() {
    await open('saxpy.cu', 'lens.cu');
    await lens('DICE: find faster').waitFor();
  },

  async progress_and_status() {
    await searching('progress.cu');
    await status(/DICE (decoding|checking)/).waitFor();
    release();
    await lens('DICE: 2.31x verified').waitFor();
  },

  async menu_preview_apply_undo() {
    await searched('applied.cu');
    await preview('`axpb`: 2.31x');
    await untilLines('fmaf');
    await applyPreview();
    await untilLines('fmaf');
    await save();
    copyFileSync(path.join(workspace, 'applied.cu'), path.join(engine, 'applied.cu'));
    await page.keyboard.press('Control+z');
    await untilLines('fmaf', false);
    await untilLines('dst[k] = alpha * lhs[k] + rhs[k];');
  },

  async stale_preview_is_not_applied() {
    await searched('stale.cu');
    await preview('`axpb`: 2.31x');
    await page.locator('.editor.original .view-line', { hasText: 'dst[k] = alpha' }).first().click();
    await page.keyboard.press('End');
    await page.keyboard.type(' // typed');
    await page.locator('.editor-actions [aria-label^="Apply this rewrite"]').first().click();
    await page.getByText('was edited since this preview').first().waitFor();
    await page.locator('.editor-actions [aria-label^="Leave this preview"]').first().click();
    await page.locator('.monaco-diff-editor').first().waitFor({ state: 'detached' });
    await untilLines('fmaf', false);
  },

  async cancel() {
    await searching('cancel.cu');
    const before = requests('cancel');
    await cursor('dst[k] = alpha');
    await command('DICE: Cancel the search');
    await until(() => requests('cancel') > before, 'the engine to be told');
    release();
    await lens('DICE: find faster').waitFor();
    await untilLines('fmaf', false);
  },

  async edit_while_it_runs() {
    await searching('edited.cu');
    const before = requests('cancel');
    await cursor('dst[k] = alpha');
    await page.keyboard.type(' // typed');
    await until(() => requests('cancel') > before, 'the search to be cancelled');
    release();
    await lens('DICE: find faster').waitFor();
    await menu('Find a faster version');
    if (await page.locator('.action-widget').getByText('Rewrite `').count()) throw new Error('a stale rewrite is offered');
    await page.keyboard.press('Escape');
  },

  async python_string() {
    await open('inline.py', 'string.py');
    const mark = page.locator('.squiggly-warning, .squiggly-error, .squiggly-info').first();
    await mark.waitFor();
    const [there, word] = [await mark.boundingBox(), await boxOf('outt')];
    if (Math.abs(there.x - word.x) > 2 || Math.abs(there.width - word.width) > 3) {
      throw new Error(`the mark is at ${JSON.stringify(there)}, the word at ${JSON.stringify(word)}`);
    }
    await page.mouse.dblclick(word.x + word.width / 2, word.y + word.height / 2);
    await page.keyboard.type('out');
    await mark.waitFor({ state: 'detached' });
    await clickLens('DICE: find faster', 'DICE: 2.31x verified');
    await cursor('dst[k] = alpha');
    await preview('`axpb`: 2.31x');
    await applyPreview();
    await untilLines('fmaf');
    await save();
    copyFileSync(path.join(workspace, 'string.py'), path.join(engine, 'applied.py'));
  },

  async emoji_and_crlf() {
    await searched('crlf.cu', 'emoji.cu');
    await preview('`axpb`: 2.31x');
    await applyPreview();
    await untilLines('fmaf');
    await save();
    copyFileSync(path.join(workspace, 'crlf.cu'), path.join(engine, 'applied-crlf.cu'));
  },

  async evidence_in_light_and_dark() {
    await searched('evidence.cu');
    await command('DICE: Show the evidence');
    const frame = await evidenceFrame();
    await frame.locator('svg').first().waitFor();
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      await frame.locator(`body.vscode-${scheme}`).waitFor();
      const found = await serious(frame);
      if (found.length) throw new Error(found.join('\n'));
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await frame.getByRole('button', { name: 'Code of candidate 1' }).click();
    await frame.getByText('one fused multiply-add').first().waitFor();
  },

  async trace_by_block() {
    await searched('trace.cu');
    await command('DICE: Show the denoising trace');
    const frame = await evidenceFrame();
    const slider = frame.getByRole('slider');
    await slider.focus();
    const words = () => slider.getAttribute('aria-valuetext');
    const shown = () => frame.locator('.trace').innerText();
    const whole = await shown();
    if (!whole.includes('fmaf(alpha, lhs[k], rhs[k]);')) throw new Error(`the end of the trace is ${whole}`);
    await page.keyboard.press('Home');
    await until(async () => (await words()).startsWith('before the first block'), 'the beginning');
    await page.keyboard.press('PageDown');
    await until(async () => /^block 1 of \d+, pass \d+ of \d+: 4 of/.test(await words()), 'the first block');
    await page.keyboard.press('ArrowRight');
    await until(async () => /^block 2 of \d+, pass 1 of/.test(await words()), 'the second block');
    await page.keyboard.press('PageUp');
    await until(async () => (await words()).startsWith('block 1 of'), 'the first block again');
    await page.keyboard.press('End');
    await until(async () => (await shown()) === whole, 'the end');
  },

  async ghost_text() {
    await open('typing.cu', 'ghost.cu');
    await lens('DICE: find faster').waitFor();
    await cursor('if (k < count)');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('End');
    await page.keyboard.type('dst[k] =', { delay: 40 });
    const ghost = page.locator('[class*=ghost-text]').first();
    await ghost.waitFor();
    await picture('vscode-ghost.png');
    await page.keyboard.type(' x');
    await ghost.waitFor({ state: 'detached' });
    await page.keyboard.press('Backspace');
    await page.keyboard.press('Backspace');
    await ghost.waitFor();
    await page.keyboard.press('Control+ArrowRight');
    await untilLines('dst[k] = alpha');
    await ghost.waitFor();
    await page.keyboard.press('Tab');
    await untilLines('dst[k] = alpha * lhs[k] + rhs[k];');
  },

  async engine_killed() {
    await searching('killed.cu');
    process.kill(Number(readFileSync(path.join(engine, 'pid'), 'utf8')), 'SIGKILL');
    await status('DICE unavailable').waitFor();
    release();
    rmSync(path.join(engine, 'ready'), { force: true });
    const [python, script] = JSON.parse(process.env.DICE_TEST_RESTART);
    spawn(python, [script, engine], { stdio: 'ignore', detached: true }).unref();
    await until(() => existsSync(path.join(engine, 'ready')), 'the engine');
    await clickLens(/find faster|try again|no verified/, 'DICE: 2.31x verified');
    await status('DICE unavailable').waitFor({ state: 'detached' });
  },

  async server_killed() {
    await open('saxpy.cu', 'server.cu');
    await lens('DICE: find faster').waitFor();
    const before = servers();
    before.forEach((pid) => process.kill(pid, 'SIGKILL'));
    await until(() => servers().some((pid) => !before.includes(pid)), 'a new server');
    await clickLens('DICE: find faster', 'DICE: 2.31x verified');
  },

  /** Ends when the test has used the same engine from another editor. */
  async shared_engine() {
    writeFileSync(path.join(engine, 'shared'), '');
    await searched('shared.cu', 'emoji.cu');
  },

  async untrusted() {
    await open('saxpy.cu', 'untrusted.cu');
    await page.getByText('Restricted Mode').first().waitFor();
    await lens('DICE: find faster').waitFor();
    await ui.insist(() => lens('DICE: find faster').click({ timeout: 5000 }), page.getByText(/is not trusted/).first(), 'the refusal');
    if (requests('generate') + requests('verify')) throw new Error('the engine was asked');
  },

  /** A server without lenses and evidence. */
  async old_server() {
    await open('saxpy.cu', 'old.cu');
    await cursor('dst[k] = alpha');
    await menu('Find a faster version').then((entry) => entry.click());
    await until(() => requests('verify') >= 4, 'the candidates to be checked');
    await page.getByText(/1 of 4 candidates verified/).first().waitFor();
    await cursor('dst[k] = alpha');
    await preview('`axpb`: 2.31x');
    await applyPreview();
    await untilLines('fmaf');
    await command('DICE: Show the evidence');
    await page.getByText(/is too old for/).first().waitFor();
  },
};

/** Where a word is on the screen. */
function boxOf(word) {
  return page.evaluate((text) => {
    const walk = document.createTreeWalker(document.querySelector('.view-lines'), NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      const at = node.data.indexOf(text);
      if (at < 0) continue;
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + text.length);
      const { x, y, width, height } = range.getBoundingClientRect();
      return { x, y, width, height };
    }
    throw new Error(`${text} is not shown`);
  }, word);
}

/** The language servers of this place: every one whose runtime folder is ours. */
function servers() {
  const ours = `DICE_RUNTIME_DIR=${process.env.DICE_RUNTIME_DIR}`;
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => {
    try {
      const program = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return program.some((part) => part.endsWith('/dice-ls') || part === 'dice_ls.server')
        && readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(ours);
    } catch {
      return false;
    }
  });
}

for (const name of wanted.split(',')) {
  try {
    await steps[name]();
    said[name] = 'ok';
  } catch (error) {
    said[name] = `${error.stack ?? error}\n${await lines().catch(() => '')}`;
    await page.screenshot({ path: `${results}.${name}.png` });
  }
  release();
  writeFileSync(`${results}.part`, JSON.stringify(said, null, 2));
}
renameSync(`${results}.part`, results);
await ui.close();
