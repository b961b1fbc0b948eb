// The scenarios inside VS Code's extension host: `run` is what VS Code calls. Results go to $DICE_TEST_RESULTS as JSON.
import * as assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import * as path from 'node:path';
import * as vscode from 'vscode';
import type { Evidence } from '../src/contract';
import type { Api } from '../src/extension';
import { Client } from '../src/session';

const engine = process.env.DICE_TEST_ENGINE!;
const samples: Record<string, string> = JSON.parse(readFileSync(path.join(engine, 'samples.json'), 'utf8'));
const workspace = () => vscode.workspace.workspaceFolders![0].uri;
let api: Api;

async function until<T>(what: () => T | Promise<T>, name: string, seconds = 90): Promise<NonNullable<T>> {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await what();
    if (value) {
      return value as NonNullable<T>;
    }
    assert.ok(Date.now() < end, `waited ${seconds} s in vain for: ${name}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

let opened = 0;

/** An editor on a new copy of a sample: no scenario finds what another has left. */
async function open(file: string, cursor = 'dst[k] ='): Promise<vscode.TextEditor> {
  await vscode.workspace.saveAll();
  await vscode.commands.executeCommand('workbench.action.closeAllEditors');
  opened += 1;
  const uri = vscode.Uri.joinPath(workspace(), `${opened}-${file}`);
  await vscode.workspace.fs.writeFile(uri, Buffer.from(samples[file]));
  const document = await vscode.workspace.openTextDocument(uri);
  const editor = await vscode.window.showTextDocument(document);
  assert.equal(document.getText(), samples[file]);
  const at = document.positionAt(document.getText().indexOf(cursor));
  editor.selection = new vscode.Selection(at, at);
  return editor;
}

async function lenses(editor: vscode.TextEditor): Promise<string[]> {
  const found = await vscode.commands.executeCommand<vscode.CodeLens[]>('vscode.executeCodeLensProvider', editor.document.uri, 10);
  return found.map((lens) => lens.command?.title ?? '');
}

const lens = (editor: vscode.TextEditor, text: string) =>
  until(async () => (await lenses(editor)).some((title) => title.includes(text)), `a lens with ${text}`);

async function actions(editor: vscode.TextEditor): Promise<vscode.CodeAction[]> {
  return vscode.commands.executeCommand('vscode.executeCodeActionProvider', editor.document.uri, editor.selection, undefined, 20);
}

const hold = () => writeFileSync(path.join(engine, 'hold'), '');
const release = () => rmSync(path.join(engine, 'hold'), { force: true });
const requests = (type: string) =>
  (existsSync(path.join(engine, 'requests.jsonl')) ? readFileSync(path.join(engine, 'requests.jsonl'), 'utf8') : '')
    .split('\n').filter(Boolean).map((line) => JSON.parse(line)).filter((one) => one.type === type).length;

async function find(editor: vscode.TextEditor): Promise<void> {
  await vscode.commands.executeCommand('dice.findFaster');
  await lens(editor, '2.31x verified');
}

/** Opens the preview of the best rewrite; returns the text it shows. */
/** The text that is previewed; of several rewrites the first that the list offers. */
async function preview(): Promise<string> {
  void vscode.commands.executeCommand('dice.preview');
  const shown = await until(async () => {
    await vscode.commands.executeCommand('workbench.action.acceptSelectedQuickOpenItem');
    const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    return input instanceof vscode.TabInputTextDiff ? input.modified : undefined;
  }, 'the preview');
  return (await vscode.workspace.openTextDocument(shown)).getText();
}

const rewritten = (text: string, core: string) => {
  const end = text.includes('\r\n') ? '\r\n' : '\n';
  const start = text.indexOf('{', text.indexOf('__global__')) + 1;
  return text.slice(0, start) + core.replaceAll('\n', end) + text.slice(text.indexOf(`}${end}${end}`, start));
};

const scenarios: Record<string, () => Promise<void>> = {
  async lens() {
    await lens(await open('saxpy.cu'), 'DICE: find faster');
  },

  async search_preview_apply_undo() {
    const editor = await open('saxpy.cu');
    const before = editor.document.getText();
    hold();
    await vscode.commands.executeCommand('dice.findFaster');
    await lens(editor, 'DICE: checking 1/8');
    await until(() => ['decoding', 'checking'].includes(api.session.status?.state ?? ''), 'the status');
    assert.equal(api.session.status?.queue, 1);
    assert.equal(api.session.status?.device, 'NVIDIA H200');
    release();
    await lens(editor, '2.31x verified');
    const titles = (await actions(editor)).map((one) => one.title);
    assert.ok(titles.some((title) => title.startsWith('Preview: Rewrite `axpb`: 2.31x')), titles.join('\n'));
    const wanted = rewritten(before, samples.FAST);
    assert.equal(await preview(), wanted);
    assert.equal(editor.document.getText(), before, 'a preview changes nothing');
    await vscode.commands.executeCommand('dice.previewApply');
    assert.equal(editor.document.getText(), wanted);
    writeFileSync(path.join(engine, 'applied.cu'), wanted);
    await vscode.commands.executeCommand('undo');
    assert.equal(editor.document.getText(), before, 'one undo takes it back');
  },

  async action_applies_to_the_byte() {
    const editor = await open('saxpy.cu');
    const before = editor.document.getText();
    await find(editor);
    const action = (await actions(editor)).find((one) => one.title.startsWith('Rewrite `axpb`: 2.31x'));
    assert.ok(action?.edit);
    await vscode.workspace.applyEdit(action.edit);
    assert.equal(editor.document.getText(), rewritten(before, samples.FAST));
  },

  /** What is chosen from the menu must not depend on what VS Code asks for afterwards. */
  async actions_need_no_resolving() {
    const editor = await open('saxpy.cu');
    await find(editor);
    const found = await vscode.commands.executeCommand<vscode.CodeAction[]>(
      'vscode.executeCodeActionProvider', editor.document.uri, editor.selection, undefined, 0);
    const ours = found.filter((one) => /`axpb`/.test(one.title));
    assert.ok(ours.length >= 4, found.map((one) => one.title).join('\n'));
    assert.deepEqual(ours.filter((one) => !one.edit).map((one) => one.title), []);
    assert.ok(ours.find((one) => one.title.startsWith('Rewrite'))!.edit!.has(editor.document.uri));
  },

  async stale_preview_is_not_applied() {
    const editor = await open('saxpy.cu');
    await find(editor);
    await preview();
    const edit = new vscode.WorkspaceEdit();
    edit.insert(editor.document.uri, new vscode.Position(0, 0), '// above\n');
    await vscode.workspace.applyEdit(edit);
    const text = editor.document.getText();
    await vscode.commands.executeCommand('dice.previewApply');
    assert.equal(editor.document.getText(), text);
  },

  async evidence_and_trace() {
    const editor = await open('saxpy.cu');
    await find(editor);
    const shown = () => vscode.window.tabGroups.all.flatMap((group) => group.tabs)
      .find((tab) => tab.input instanceof vscode.TabInputWebview && tab.input.viewType.endsWith('dice.evidence'));
    const evidence = await vscode.commands.executeCommand<Evidence>('dice.showEvidence');
    assert.deepEqual(evidence.candidates.filter((one) => one.offerable).map((one) => one.core), [samples.FAST]);
    assert.match(evidence.markdown, /2.31x faster/);
    await until(() => shown()?.label === 'Evidence: axpb', 'the panel');
    await until(() => api.evidence.drawn, 'the page to be there');
    const trace = await vscode.commands.executeCommand<{ tokens: { text: string; block: number }[] }>('dice.showTrace');
    assert.equal(trace.tokens.map((token) => token.text).join(''), samples.FAST);
    assert.ok(new Set(trace.tokens.map((token) => token.block)).size > 1);
  },

  async ghost_text() {
    const editor = await open('typing.cu', '    \n');
    const line = () => editor.document.lineAt(5).text.trim();
    const end = () => { editor.selection = new vscode.Selection(editor.document.lineAt(5).range.end, editor.document.lineAt(5).range.end); };
    /** What is accepted is there only once it was shown. */
    const accept = (command: string, text: string) => until(async () => {
      await vscode.commands.executeCommand('editor.action.inlineSuggest.trigger');
      await vscode.commands.executeCommand(`editor.action.inlineSuggest.${command}`);
      return line() === text;
    }, text);
    end();
    await vscode.commands.executeCommand('type', { text: 'dst[k] =' });
    await accept('commit', 'dst[k] = alpha * lhs[k] + rhs[k];');
    await vscode.commands.executeCommand('undo');
    await until(() => line() === 'dst[k] =', 'what was typed');
    end();
    await accept('acceptNextWord', 'dst[k] = alpha');
    await vscode.commands.executeCommand('type', { text: ' x' });
    await vscode.commands.executeCommand('editor.action.inlineSuggest.commit');
    assert.equal(line(), 'dst[k] = alpha x', 'typing something else has hidden it');
  },

  async cancel() {
    const editor = await open('saxpy.cu');
    const before = requests('cancel');
    hold();
    await vscode.commands.executeCommand('dice.findFaster');
    await lens(editor, 'DICE: checking 1/8');
    await vscode.commands.executeCommand('dice.cancel');
    await until(() => requests('cancel') > before, 'the engine to be told');
    release();
    await lens(editor, 'DICE: find faster');
  },

  async edit_while_it_runs() {
    const editor = await open('saxpy.cu');
    const before = requests('cancel');
    hold();
    await vscode.commands.executeCommand('dice.findFaster');
    await lens(editor, 'DICE: checking 1/8');
    await editor.edit((edit) => edit.insert(editor.selection.active, '/* typed */ '));
    await until(() => requests('cancel') > before, 'the search to be cancelled');
    release();
    await lens(editor, 'DICE: find faster');
    assert.ok(!(await actions(editor)).some((one) => one.title.startsWith('Rewrite `')));
  },

  async python_string() {
    const editor = await open('inline.py', 'outt');
    const [found] = await until(() => {
      const all = vscode.languages.getDiagnostics(editor.document.uri).filter((one) => one.source === 'dice');
      return all.length ? all : undefined;
    }, 'the diagnostic');
    assert.equal(editor.document.getText(found.range), 'outt');
    await editor.edit((edit) => edit.replace(found.range, 'out'));
    await until(() => !vscode.languages.getDiagnostics(editor.document.uri).some((one) => one.source === 'dice'), 'no diagnostic');
    const at = editor.document.positionAt(editor.document.getText().indexOf('dst[k] ='));
    editor.selection = new vscode.Selection(at, at);
    await find(editor);
    await preview();
    await vscode.commands.executeCommand('dice.previewApply');
    writeFileSync(path.join(engine, 'applied.py'), editor.document.getText());
  },

  async emoji_and_crlf() {
    const editor = await open('emoji.cu');
    const before = editor.document.getText();
    assert.equal(editor.document.eol, vscode.EndOfLine.CRLF);
    await find(editor);
    await preview();
    await vscode.commands.executeCommand('dice.previewApply');
    assert.equal(editor.document.getText(), rewritten(before, samples.FAST));
  },

  async engine_killed() {
    const editor = await open('saxpy.cu');
    hold();
    await vscode.commands.executeCommand('dice.findFaster');
    await lens(editor, 'DICE: checking 1/8');
    process.kill(Number(readFileSync(path.join(engine, 'pid'), 'utf8')), 'SIGKILL');
    await until(() => api.session.status?.state === 'unavailable', 'the status to say so');
    release();
    rmSync(path.join(engine, 'ready'));
    const [python, script] = JSON.parse(process.env.DICE_TEST_RESTART!);
    spawn(python, [script, engine], { stdio: 'ignore', detached: true }).unref();
    await until(() => existsSync(path.join(engine, 'ready')), 'the engine');
    await find(editor);
    assert.notEqual(api.session.status?.state, 'unavailable');
  },

  async server_killed() {
    const editor = await open('saxpy.cu');
    const children = await until(() => serverPids(), 'the server process');
    children.forEach((pid) => process.kill(pid, 'SIGKILL'));
    await until(() => serverPids()?.some((pid) => !children.includes(pid)), 'a new server');
    await lens(editor, 'DICE: find faster');
  },

  async untrusted() {
    assert.equal(vscode.workspace.isTrusted, false);
    const editor = await open('saxpy.cu');
    await lens(editor, 'DICE: find faster');
    await vscode.commands.executeCommand('dice.findFaster');
    // Answered after the search was refused: the server takes commands in turn.
    await vscode.commands.executeCommand('dice.status');
    await lens(editor, 'DICE: find faster');
    assert.equal(requests('generate') + requests('verify'), 0, 'nothing may reach the engine');
    assert.equal(api.session.status?.engine?.running ?? false, false);
  },

  async real_engine() {
    const configuration = vscode.workspace.getConfiguration('dice');
    await configuration.update('device', 'cpu', vscode.ConfigurationTarget.Global);
    await configuration.update('candidates', 2, vscode.ConfigurationTarget.Global);
    const editor = await open('silu.cu', 'out[i] = v');
    await vscode.commands.executeCommand('dice.findFaster');
    const end = /not timed|no verified/;
    await until(async () => (await lenses(editor)).some((title) => end.test(title)), 'the end of the search', 200);
    if ((await lenses(editor)).some((title) => title.includes('not timed'))) {
      assert.match(await preview(), /expf/);
      await vscode.commands.executeCommand('dice.previewApply');
      assert.match(editor.document.getText(), /expf/);
    }
  },

  async install_server() {
    await api.session.install(process.env.DICE_TEST_REQUIREMENT);
    await until(() => api.session.state === 'running', 'the server that was installed');
    const programs = serverPids()!.map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[0]);
    assert.ok(programs.every((program) => program.includes('globalStorage')), programs.join(' '));
    await lens(await open('saxpy.cu'), 'DICE: find faster');
  },

  /** A client that knows the protocol and nothing of DICE: what an older extension is to this server. */
  async old_client() {
    await api.session.stop();
    const client = new Client('plain', 'Plain', { command: 'dice-ls' }, {
      documentSelector: [{ scheme: 'file', language: 'cuda-cpp' }],
      initializationOptions: { trusted: true },
    });
    try {
      await client.start();
      const editor = await open('saxpy.cu');
      await lens(editor, 'DICE: find faster');
      const found = (await actions(editor)).find((one) => one.title.startsWith('Find a faster'))!.command!;
      await client.sendRequest('workspace/executeCommand', { command: found.command, arguments: found.arguments });
      await lens(editor, '2.31x verified');
      const action = (await actions(editor)).find((one) => one.title.startsWith('Rewrite `axpb`: 2.31x'));
      await vscode.workspace.applyEdit(action!.edit!);
      assert.equal(editor.document.getText(), rewritten(samples['saxpy.cu'], samples.FAST));
    } finally {
      await client.dispose();
      await api.session.start();
    }
    await until(() => api.session.state === 'running', 'the extension\'s own client');
  },

  async old_server() {
    const configuration = vscode.workspace.getConfiguration('dice');
    await configuration.update('python', process.env.DICE_TEST_OLD_PYTHON, vscode.ConfigurationTarget.Global);
    await until(() => api.session.state === 'running' && !api.session.knows('dice.showEvidence'), 'the old server');
    const editor = await open('saxpy.cu');
    assert.equal(await vscode.commands.executeCommand('dice.showEvidence'), undefined);
    await vscode.commands.executeCommand('dice.findFaster');
    await until(async () => (await actions(editor)).some((one) => one.title.startsWith('Rewrite `axpb`: 2.31x')), 'a rewrite');
    assert.equal(await preview(), rewritten(samples['saxpy.cu'], samples.FAST));
    await configuration.update('python', undefined, vscode.ConfigurationTarget.Global);
    await until(() => api.session.state === 'running' && api.session.knows('dice.showEvidence'), 'the present server again');
  },
};

/** Servers of this extension host, from /proc. */
function serverPids(): number[] | undefined {
  const children = readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  const servers = children.filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('dice');
    } catch {
      return false;
    }
  });
  return servers.length ? servers : undefined;
}

export async function run(): Promise<void> {
  const results: Record<string, string> = {};
  try {
    const extension = vscode.extensions.getExtension<Api>('dice.dice')!;
    api = await extension.activate();
    await until(() => api.session.state === 'running', 'the server').catch((error) => {
      throw new Error(`${error} (${api.session.state}: ${api.session.problem})`);
    });
    const only = process.env.DICE_TEST_ONLY?.split(',');
    for (const [name, scenario] of Object.entries(scenarios)) {
      if (only ? !only.includes(name) : ['untrusted', 'real_engine'].includes(name)) {
        continue;
      }
      const started = Date.now();
      try {
        await scenario();
        results[name] = 'ok';
      } catch (error) {
        results[name] = `${(error as Error).stack ?? error}\n${JSON.stringify(api.session.status)} ${api.session.state} ${api.session.problem}`;
      }
      release();
      results[`${name} seconds`] = String((Date.now() - started) / 1000);
      writeFileSync(`${process.env.DICE_TEST_RESULTS}.part`, JSON.stringify(results, null, 2));
    }
  } catch (error) {
    results.start = String((error as Error).stack ?? error);
  }
  const target = process.env.DICE_TEST_RESULTS!;
  writeFileSync(`${target}.part`, JSON.stringify(results, null, 2));
  renameSync(`${target}.part`, target);
}
