// The page of `dice report`, opened from disk: what a person and axe-core see. The pictures
// are of another page. `node report_page.mjs PAGE RESULTS PICTURED PICTURES`
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { axe, open } from './browser.mjs';

const [file, results, pictured, pictures] = process.argv.slice(2);
const said = { requests: [], errors: [], serious: {} };

for (const scheme of ['light', 'dark']) {
  const { page, close } = await open({ dark: scheme === 'dark', width: 1160, height: 1560 });
  page.on('request', (request) => said.requests.push(request.url()));
  page.on('console', (message) => { if (message.type() === 'error') said.errors.push(message.text()); });
  page.on('pageerror', (error) => said.errors.push(String(error)));
  await page.goto(pathToFileURL(file).href);
  await page.locator('#dice-evidence h1').waitFor();
  await page.evaluate(readFileSync(axe, 'utf8'));
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  said.serious[scheme] = violations.filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`);
  said.paper = { ...said.paper, [scheme]: await page.evaluate(() => getComputedStyle(document.body).backgroundColor) };
  if (scheme === 'light') {
    said.headings = await page.locator('h2').allInnerTexts();
    said.charts = await page.locator('svg[role=img]').evaluateAll((all) => all.map((one) => one.getAttribute('aria-label')));
    said.scripted = await page.evaluate(() => globalThis.marked ?? 'no');
    await page.locator('button[aria-expanded]').first().focus();
    await page.keyboard.press('Enter');
    said.code = await page.locator('tr.detail pre').first().innerText();
    said.focusStays = await page.evaluate(() => document.activeElement.getAttribute('aria-expanded'));
    await page.getByRole('button', { name: 'Copy as Markdown' }).click();
    await page.getByRole('button', { name: 'Copied' }).waitFor();
    const slider = page.getByRole('slider');
    await slider.focus();
    await page.keyboard.press('Home');
    said.traceAtStart = await page.locator('.trace').innerText();
    await page.keyboard.press('ArrowRight');
    said.valueText = await slider.getAttribute('aria-valuetext');
    await page.keyboard.press('PageDown');
    said.afterPageDown = await slider.getAttribute('aria-valuetext');
    await page.keyboard.press('End');
    said.traceAtEnd = await page.locator('.trace').innerText();
    await page.getByRole('button', { name: 'Play' }).click();
    await page.getByRole('button', { name: 'Pause' }).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
  }
  await page.goto(pathToFileURL(pictured).href);
  await page.locator('#dice-evidence h1').waitFor();
  await page.screenshot({ path: path.join(pictures, `report-${scheme}.png`) });
  await close();
}
writeFileSync(results, JSON.stringify(said, null, 2));
