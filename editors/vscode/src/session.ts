// One language server: started, stopped and restarted politely; what it says of itself is an event.
import * as vscode from 'vscode';
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  type DynamicFeature,
  type LanguageClientOptions,
  type StaticFeature,
} from 'vscode-languageclient/node';
import commands from './generated.json';
import type { Status } from './contract';
import { middleware } from './middleware';
import { findServer, installServer, userSetting } from './server';

const SELECTOR = [
  { scheme: 'file', language: 'cuda-cpp' },
  { scheme: 'file', language: 'python' },
  { scheme: 'file', pattern: '**/*.{cu,cuh}' },
  { scheme: 'untitled', language: 'cuda-cpp' },
  { scheme: 'untitled', language: 'python' },
];
const AGAIN = 3;

export type State = 'none' | 'starting' | 'running' | 'stopped';

/** The client without its command feature: the commands exist before the server does (see commands.ts). */
export class Client extends LanguageClient {
  override registerFeature(feature: StaticFeature | DynamicFeature<unknown>): void {
    if (!('registrationType' in feature) || feature.registrationType.method !== 'workspace/executeCommand') {
      super.registerFeature(feature);
    }
  }
}

/** Actions come with their edits: one that is resolved after it was chosen may be gone by then (see middleware.ts). */
const wholeActions: StaticFeature = {
  fillClientCapabilities: (capabilities) => {
    delete capabilities.textDocument?.codeAction?.resolveSupport;
  },
  initialize: () => undefined,
  getState: () => ({ kind: 'static' }),
  clear: () => undefined,
};

export class Session implements vscode.Disposable {
  client: Client | undefined;
  status: Status | undefined;
  state: State = 'none';
  /** Why the server does not run, when it should. */
  problem = '';
  readonly log = vscode.window.createOutputChannel('DICE', { log: true });
  private readonly changes = new vscode.EventEmitter<void>();
  readonly onChange = this.changes.event;
  private crashes: number[] = [];
  private work: Promise<void> = Promise.resolve();

  constructor(private readonly context: vscode.ExtensionContext) {}

  /** Starts the server, or waits until it has started; offers to install one when there is none. Safe to call again. */
  start(): Promise<void> {
    return this.inTurn(() => this.startNow());
  }

  stop(): Promise<void> {
    return this.inTurn(() => this.stopNow());
  }

  restart(): Promise<void> {
    return this.inTurn(async () => {
      await this.stopNow();
      await this.startNow();
    });
  }

  async install(requirement?: string): Promise<void> {
    await this.stop();
    try {
      await installServer(this.context.globalStorageUri, requirement);
    } catch (error) {
      void this.tell(`DICE: the server was not installed: ${(error as Error).message}`);
    }
    await this.start();
  }

  /** Whether the server takes a command; an older one may not know it. */
  knows(command: string): boolean {
    const provider = this.client?.initializeResult?.capabilities.executeCommandProvider;
    return provider?.commands.includes(command) ?? false;
  }

  needsRestart(change: vscode.ConfigurationChangeEvent): boolean {
    return commands.userSettings.some((key) => change.affectsConfiguration(key));
  }

  private inTurn(action: () => Promise<void>): Promise<void> {
    this.work = this.work.then(action).catch((error) => this.log.error(String(error)));
    return this.work;
  }

  private async startNow(): Promise<void> {
    if (this.client) {
      return;
    }
    const server = await findServer(this.context.globalStorageUri);
    if (!server) {
      this.set('none');
      void this.offer();
      return;
    }
    this.set('starting');
    this.problem = '';
    const client = new Client('dice', 'DICE', server, this.options());
    client.onNotification('dice/status', (status: Status) => {
      this.status = status;
      this.changes.fire();
    });
    client.registerFeature(wholeActions);
    this.client = client;
    try {
      await client.start();
      this.set('running');
    } catch (error) {
      this.client = undefined;
      this.problem = `${server.command} did not start: ${(error as Error).message ?? error}`;
      this.set('stopped');
      void this.tell(`DICE: ${this.problem}`);
    }
  }

  private async tell(message: string): Promise<void> {
    if (await vscode.window.showErrorMessage(message, 'Show the log')) {
      this.log.show();
    }
  }

  private async stopNow(): Promise<void> {
    const client = this.client;
    this.client = this.status = undefined;
    this.set('stopped');
    if (client) {
      await client.stop(3000).catch((error) => this.log.warn(String(error)));
      await client.dispose().catch(() => undefined);
    }
  }

  private options(): LanguageClientOptions {
    const values: Record<string, unknown> = {};
    const section = vscode.workspace.getConfiguration('dice');
    for (const key of commands.userSettings) {
      values[key.slice(5)] = userSetting(key.slice(5)) ?? null;
    }
    for (const key of commands.workspaceSettings) {
      values[key.slice(5)] = section.get(key.slice(5));
    }
    delete values.python;
    values.trusted = vscode.workspace.isTrusted ? (values.trusted ?? true) : false;
    return {
      documentSelector: SELECTOR,
      initializationOptions: values,
      outputChannel: this.log,
      traceOutputChannel: this.log,
      markdown: { isTrusted: false },
      middleware,
      errorHandler: {
        error: (_error, _message, count) => ({ action: (count ?? 0) < 3 ? ErrorAction.Continue : ErrorAction.Shutdown }),
        closed: () => this.closed(),
      },
    };
  }

  /** The server died: again at once, but not for ever. */
  private closed(): { action: CloseAction; message?: string; handled?: boolean } {
    const now = Date.now();
    this.crashes = [...this.crashes.filter((at) => now - at < 180_000), now];
    this.status = undefined;
    this.changes.fire();
    if (this.crashes.length <= AGAIN) {
      return { action: CloseAction.Restart, handled: true };
    }
    this.client = undefined;
    this.set('stopped');
    return {
      action: CloseAction.DoNotRestart,
      message: `DICE: the server ended ${this.crashes.length} times in three minutes; "DICE: Restart the server" tries again.`,
    };
  }

  private set(state: State): void {
    this.state = state;
    this.changes.fire();
  }

  private async offer(): Promise<void> {
    const python = userSetting<string>('python');
    if (python) {
      return this.tell(`DICE: ${python} (setting dice.python) cannot be run.`);
    }
    const chosen = await vscode.window.showInformationMessage(
      'DICE needs its server dice-ls. Install it into an environment of its own?',
      'Install',
      'Name a Python',
    );
    if (chosen === 'Install') {
      await this.install();
    } else if (chosen) {
      await vscode.commands.executeCommand('workbench.action.openSettings', 'dice.python');
    }
  }

  dispose(): void {
    void this.stop();
    this.changes.dispose();
    this.log.dispose();
  }
}
