// Which server is started, and how one is installed. Paths come from user settings only, never from a workspace.
import { execFile, spawn } from 'node:child_process';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import * as path from 'node:path';
import { promisify } from 'node:util';
import * as vscode from 'vscode';
import type { Executable } from 'vscode-languageclient/node';

declare const REPOSITORY: string; // build.mjs
const PACKAGE = 'dice-ls[engine]';
const WINDOWS = process.platform === 'win32';
const run = promisify(execFile);

/** A setting of user scope: what a workspace says about it is not looked at. */
export function userSetting<T>(key: string): T | undefined {
  const found = vscode.workspace.getConfiguration('dice').inspect<T>(key);
  return found?.globalValue ?? found?.defaultValue ?? undefined;
}

/** The command that starts the server, or undefined when none is installed. */
export async function findServer(storage: vscode.Uri): Promise<Executable | undefined> {
  const python = userSetting<string>('python');
  if (python) {
    return (await runs(python)) ? module(python) : undefined;
  }
  const own = pythonOf(environment(storage));
  if (await runs(own)) {
    return module(own);
  }
  const folders = (process.env.PATH ?? '').split(path.delimiter);
  for (const folder of [...folders, path.join(REPOSITORY, '.venv', WINDOWS ? 'Scripts' : 'bin')]) {
    const file = path.join(folder, WINDOWS ? 'dice-ls.exe' : 'dice-ls');
    if (path.isAbsolute(folder) && (await runs(file))) {
      return { command: file };
    }
  }
  return undefined;
}

/** What pip is given: the repository that this extension was built in, while it is there. */
async function requirement(): Promise<string> {
  const there = await access(path.join(REPOSITORY, 'pyproject.toml')).then(() => true, () => false);
  return there ? `${REPOSITORY}[engine]` : PACKAGE;
}

function module(python: string): Executable {
  return { command: python, args: ['-m', 'dice_ls.server'], options: { env: { ...process.env, PYTHONSAFEPATH: '1' } } };
}

function environment(storage: vscode.Uri): string {
  return path.join(storage.fsPath, 'server');
}

function pythonOf(venv: string): string {
  return WINDOWS ? path.join(venv, 'Scripts', 'python.exe') : path.join(venv, 'bin', 'python');
}

async function runs(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(() => true, () => false);
}

/** Makes the extension's own environment and installs the server there; the lines of pip are the progress. */
export async function installServer(storage: vscode.Uri, wanted?: string): Promise<void> {
  await vscode.window.withProgress(
    { location: vscode.ProgressLocation.Notification, title: 'DICE: installing the server', cancellable: true },
    async (progress, cancelled) => {
      const venv = environment(storage);
      await vscode.workspace.fs.createDirectory(storage);
      progress.report({ message: 'making a Python environment' });
      await makeEnvironment(venv);
      const pip = ['-m', 'pip', 'install', '--upgrade', '--disable-pip-version-check', '--progress-bar', 'off', wanted ?? (await requirement())];
      await lines(pythonOf(venv), pip, cancelled, (line) => progress.report({ message: line.slice(0, 90) }));
    },
  );
}

async function makeEnvironment(venv: string): Promise<void> {
  const failures = [];
  for (const python of WINDOWS ? ['py', 'python'] : ['python3', 'python']) {
    try {
      await run(python, ['-c', 'import sys; assert sys.version_info >= (3, 10), "Python 3.10 or newer is needed"']);
      await run(python, ['-m', 'venv', '--clear', venv]);
      return;
    } catch (error) {
      failures.push(`${python}: ${lastLine(error)}`);
    }
  }
  throw new Error(`no Python that can make an environment (${failures.join('; ')})`);
}

function lastLine(error: unknown): string {
  const text = String((error as { stderr?: string }).stderr || error).trim();
  return text.split('\n').pop() ?? '';
}

/** Runs a program, tells its lines, and throws its last one when it fails. */
function lines(
  program: string,
  args: string[],
  cancelled: vscode.CancellationToken,
  tell: (line: string) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let last = '';
    const read = (data: Buffer) => {
      for (const line of data.toString().split('\n').filter((one) => one.trim())) {
        last = line.trim();
        tell(last);
      }
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    const stop = cancelled.onCancellationRequested(() => child.kill());
    child.on('error', reject);
    child.on('close', (code) => {
      stop.dispose();
      if (code === 0) {
        resolve();
      } else {
        reject(new Error(cancelled.isCancellationRequested ? 'the installation was cancelled' : last || `exit ${code}`));
      }
    });
  });
}
