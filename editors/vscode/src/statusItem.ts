// The status item: engine, device, queue; a click opens the menu.
import * as vscode from 'vscode';
import type { Status } from './contract';
import type { Session } from './session';

const ICONS: Record<string, string> = {
  idle: '$(check)',
  starting: '$(loading~spin)',
  decoding: '$(loading~spin)',
  checking: '$(beaker)',
  paused: '$(debug-pause)',
  unavailable: '$(warning)',
};

/** `checking axpb, NVIDIA H200, 2 in queue`. */
export function describe(status: Status): string {
  const parts = [status.running ? `${status.state} ${status.running}` : status.state];
  if (status.waiting_for) {
    parts.push(`waits for ${status.waiting_for}`);
  }
  if (status.device) {
    parts.push(status.device);
  }
  if (status.queue) {
    parts.push(`${status.queue} in queue`);
  }
  if (status.message) {
    parts.push(status.message);
  }
  return `DICE: ${parts.join(', ')}`;
}

export class StatusItem implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem('dice.status', vscode.StatusBarAlignment.Right, 90);
  private readonly listener: vscode.Disposable;

  constructor(private readonly session: Session) {
    this.item.name = 'DICE';
    this.item.command = 'dice.menu';
    this.listener = session.onChange(() => this.draw());
    this.draw();
    this.item.show();
  }

  private draw(): void {
    const { state, status, problem } = this.session;
    const [icon, text, tooltip] = this.words(state, status, problem);
    this.item.text = `${icon} ${text}`;
    this.item.tooltip = tooltip;
    this.item.accessibilityInformation = { label: tooltip };
    this.item.backgroundColor =
      status?.state === 'unavailable' || state === 'stopped'
        ? new vscode.ThemeColor('statusBarItem.warningBackground')
        : undefined;
  }

  private words(state: string, status: Status | undefined, problem: string): [string, string, string] {
    if (state === 'none') {
      return ['$(cloud-download)', 'DICE', 'DICE: the server is not installed'];
    }
    if (state === 'starting') {
      return ['$(loading~spin)', 'DICE', 'DICE: the server starts'];
    }
    if (state === 'stopped') {
      return ['$(circle-slash)', 'DICE stopped', `DICE: ${problem || 'the server does not run'}`];
    }
    const current: Status = status ?? { state: 'idle', device: '', queue: 0, message: '' };
    const queue = current.queue > 1 ? ` (${current.queue})` : '';
    const text = current.state === 'idle' ? 'DICE' : `DICE ${current.state}${queue}`;
    return [ICONS[current.state] ?? '$(check)', text, describe(current)];
  }

  dispose(): void {
    this.listener.dispose();
    this.item.dispose();
  }
}

/** What a click on the status item offers, the likeliest first. */
export async function showMenu(session: Session): Promise<void> {
  const paused = session.status?.state === 'paused';
  const all: [string, string][] = [
    ['$(search) Find a faster version of the code at the cursor', 'dice.findFaster'],
    ['$(diff) Preview the verified rewrites', 'dice.preview'],
    ['$(graph) Show the evidence', 'dice.showEvidence'],
    ['$(close) Cancel the search', 'dice.cancel'],
    paused ? ['$(debug-start) Resume', 'dice.resume'] : ['$(debug-pause) Pause', 'dice.pause'],
    ['$(package) Select a checkpoint', 'dice.selectCheckpoint'],
    ['$(debug-restart) Restart the engine', 'dice.restartEngine'],
    ['$(refresh) Restart the server', 'dice.restartServer'],
    ['$(output) Show the log', 'dice.showLog'],
    ['$(cloud-download) Install or update the server', 'dice.installServer'],
  ];
  const extension = new Set(['dice.preview', 'dice.restartServer', 'dice.showLog', 'dice.installServer']);
  const items = all
    .filter(([, command]) => extension.has(command) || session.knows(command))
    .map(([label, command]) => ({ label, command }));
  const title = session.status ? describe(session.status) : 'DICE';
  const chosen = await vscode.window.showQuickPick(items, { title });
  if (chosen) {
    await vscode.commands.executeCommand(chosen.command);
  }
}
