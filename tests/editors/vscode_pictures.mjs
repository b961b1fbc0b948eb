// VS Code with the real engine and the embedded model on one kernel, for the pictures of the README.
// `node vscode_pictures.mjs URL WORKSPACE RESULTS PICTURES`
import { writeFileSync } from 'node:fs';
import { window } from './vscode_page.mjs';

const [base, workspace, results, pictures] = process.argv.slice(2);
const { page, close, url, lens, clickLens, picture, lines, untilLines, cursor, command, menu, applyPreview, evidenceFrame } = await window(base, workspace, pictures);
const said = { failed: '' };

try {
  await page.goto(url('silu.cu'));
  await lens('DICE: find faster').waitFor();
  await page.keyboard.press('Control+b');
  await clickLens('DICE: find faster', /starting|decoding|checking|not timed|no verified/);
  const end = page.locator('.codelens-decoration', { hasText: /not timed|no verified/ }).first();
  await end.waitFor({ timeout: 240_000 });
  said.lens = await end.innerText();
  await picture('vscode-lens.png');
  if (said.lens.includes('not timed')) {
    await cursor('out[i] = v');
    await menu('Preview: Rewrite');
    await page.locator('.action-widget .focused', { hasText: 'Preview: Rewrite' }).waitFor();
    await picture('vscode-menu.png');
    await page.keyboard.press('Enter');
    await page.locator('.monaco-diff-editor').first().waitFor();
    await untilLines('expf');
    await picture('vscode-preview.png');
    await applyPreview();
    await untilLines('v / (1.0 + exp(-v))', false);
    said.applied = await lines();
    await page.keyboard.press('Control+z');
    await untilLines('v / (1.0 + exp(-v))');
  }
  await cursor('out[i] = v');
  await command('DICE: Show the evidence');
  const frame = await evidenceFrame();
  await frame.getByRole('button', { name: /Denoising trace of candidate/ }).first().click();
  await frame.getByRole('slider').waitFor();
  said.pass = await frame.getByRole('slider').getAttribute('aria-valuetext');
  await frame.evaluate(() => scrollTo(0, 0));
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await frame.locator(`body.vscode-${scheme}`).waitFor();
    await picture(`vscode-evidence-${scheme}.png`);
  }
  await frame.getByRole('slider').focus();
  await page.keyboard.press('Home');
  for (let block = 0; block < 5; block += 1) await page.keyboard.press('PageDown');
  for (let pass = 0; pass < 2; pass += 1) await page.keyboard.press('ArrowRight');
  await frame.getByRole('slider').scrollIntoViewIfNeeded();
  await picture('vscode-trace.png');
} catch (error) {
  said.failed = String(error.stack ?? error);
  await page.screenshot({ path: `${results}.png` });
}
writeFileSync(results, JSON.stringify(said, null, 2));
await close();
