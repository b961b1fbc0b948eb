// Bundles the extension and puts the evidence page, which `dice report` shares, beside it. No network.
import { build } from 'esbuild';
import { cp, mkdir } from 'node:fs/promises';
import path from 'node:path';

// Where the extension was built: the server that `make install` made there is used when no other is found.
const define = { REPOSITORY: JSON.stringify(path.resolve('../..')) };
const shared = { define, bundle: true, platform: 'node', target: 'node20', format: 'cjs', external: ['vscode'], logLevel: 'warning' };
await build({ ...shared, entryPoints: ['src/extension.ts'], outfile: 'dist/extension.js', minify: true });
await mkdir('dist/evidence', { recursive: true });
await cp('../../dice_ls/report/page', 'dist/evidence', { recursive: true });
if (process.argv.includes('--tests')) {
  await build({ ...shared, entryPoints: ['test/host.ts'], outfile: 'dist-test/host.js' });
}
