// Bundles the extension and puts the evidence page, which `dice report` shares, beside it. No network.
import { build } from 'esbuild';
import { cp, mkdir } from 'node:fs/promises';

const shared = { bundle: true, platform: 'node', target: 'node20', format: 'cjs', external: ['vscode'], logLevel: 'warning' };
await build({ ...shared, entryPoints: ['src/extension.ts'], outfile: 'dist/extension.js', minify: true });
await mkdir('dist/evidence', { recursive: true });
await cp('../../dice_ls/report/page', 'dist/evidence', { recursive: true });
if (process.argv.includes('--tests')) {
  await build({ ...shared, entryPoints: ['test/host.ts'], outfile: 'dist-test/host.js' });
}
