// The evidence panel: the page that `dice report` writes too, fed by messages, under a policy that allows nothing else.
import { randomBytes } from 'node:crypto';
import * as vscode from 'vscode';
import { ExecuteCommandRequest } from 'vscode-languageclient/node';
import type { Evidence } from './contract';
import type { Session } from './session';

const SCRIPTS = ['text.js', 'charts.js', 'trace.js', 'page.js'];

type Message =
  | { type: 'ready' }
  | { type: 'copy'; text: string }
  | { type: 'apply'; candidate: number }
  | { type: 'trace'; candidate: number };

export class EvidencePanel implements vscode.Disposable {
  private panel: vscode.WebviewPanel | undefined;
  private evidence: Evidence | undefined;
  private ready = false;
  /** Whether the page has come up and was given what there is to show. */
  get drawn(): boolean {
    return this.ready && this.waiting.length === 0;
  }
  private waiting: unknown[] = [];
  private readonly listener: vscode.Disposable;
  private refresh: NodeJS.Timeout | undefined;

  constructor(
    private readonly extension: vscode.Uri,
    private readonly session: Session,
  ) {
    this.listener = session.onChange(() => this.later());
  }

  show(evidence: Evidence): void {
    this.evidence = evidence;
    if (!this.panel) {
      this.open();
    }
    if (this.panel) {
      this.panel.title = `Evidence: ${evidence.name}`;
      this.panel.reveal(undefined, true);
    }
    this.send({ type: 'evidence', evidence });
  }

  /** Shows the trace of one candidate, in the panel of its hole. */
  async showTrace(trace: { hole: string; candidate: number }): Promise<void> {
    if (this.evidence?.hole === trace.hole) {
      this.panel?.reveal(undefined, true);
    } else {
      await vscode.commands.executeCommand('dice.showEvidence');
    }
    this.send({ type: 'trace', trace, open: true });
  }

  private open(): void {
    const page = vscode.Uri.joinPath(this.extension, 'dist', 'evidence');
    this.panel = vscode.window.createWebviewPanel(
      'dice.evidence',
      'Evidence',
      { viewColumn: vscode.ViewColumn.Beside, preserveFocus: true },
      { enableScripts: true, localResourceRoots: [page], retainContextWhenHidden: true },
    );
    this.ready = false;
    this.panel.webview.onDidReceiveMessage((message: Message) => this.received(message));
    this.panel.onDidDispose(() => {
      this.panel = this.evidence = undefined;
      this.waiting = [];
    });
    this.panel.webview.html = html(this.panel.webview, page);
  }

  private send(message: unknown): void {
    if (this.ready) {
      void this.panel?.webview.postMessage(message);
    } else {
      this.waiting.push(message);
    }
  }

  private async received(message: Message): Promise<void> {
    if (message.type === 'ready') {
      this.ready = true;
      this.waiting.splice(0).forEach((one) => this.send(one));
    } else if (message.type === 'copy') {
      await vscode.env.clipboard.writeText(message.text);
    } else if (this.evidence) {
      const { uri, hole } = this.evidence;
      const command = message.type === 'apply' ? 'dice.applySuggestion' : 'dice.showTrace';
      try {
        const answer = await this.request(command, { uri, hole, candidate: message.candidate });
        if (message.type === 'trace') {
          this.send({ type: 'trace', trace: answer });
        }
      } catch (error) {
        void vscode.window.showWarningMessage(`DICE: ${(error as Error).message}`);
      }
    }
  }

  private request(command: string, argument: unknown): Promise<unknown> {
    const client = this.session.client;
    if (!client) {
      return Promise.reject(new Error('the server does not run'));
    }
    return client.sendRequest(ExecuteCommandRequest.type, { command, arguments: [argument] });
  }

  /** The panel follows the search: at most once a second. */
  private later(): void {
    if (!this.panel || !this.evidence || this.refresh) {
      return;
    }
    this.refresh = setTimeout(async () => {
      this.refresh = undefined;
      const { uri, hole } = this.evidence ?? {};
      const fresh = await this.request('dice.showEvidence', { uri, hole }).catch(() => undefined);
      if (fresh && this.panel && this.evidence?.hole === hole) {
        this.evidence = fresh as Evidence;
        this.send({ type: 'evidence', evidence: fresh });
      }
    }, 1000);
  }

  dispose(): void {
    clearTimeout(this.refresh);
    this.listener.dispose();
    this.panel?.dispose();
  }
}

function html(webview: vscode.Webview, page: vscode.Uri): string {
  const nonce = randomBytes(16).toString('base64');
  const at = (name: string) => webview.asWebviewUri(vscode.Uri.joinPath(page, name)).toString();
  const policy = `default-src 'none'; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'`;
  const scripts = SCRIPTS.map((name) => `<script nonce="${nonce}" src="${at(name)}"></script>`).join('\n');
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>DICE: evidence</title>
<link rel="stylesheet" href="${at('page.css')}">
</head>
<body>
<main id="dice-evidence"></main>
${scripts}
</body>
</html>`;
}
