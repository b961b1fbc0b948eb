// The commands: the server's, with what they need from the editor filled in, and those of the extension itself.
import * as vscode from 'vscode';
import { ExecuteCommandRequest } from 'vscode-languageclient/node';
import type { Command, Evidence, Status } from './contract';
import type { EvidencePanel } from './evidence';
import generated from './generated.json';
import type { Place } from './middleware';
import type { Preview } from './preview';
import type { Session } from './session';
import { describe, showMenu } from './statusItem';

export function registerCommands(
  context: vscode.ExtensionContext,
  session: Session,
  evidence: EvidencePanel,
  preview: Preview,
): void {
  const own: Record<string, (...args: never[]) => unknown> = {
    'dice.menu': () => showMenu(session),
    'dice.installServer': () => session.install(),
    'dice.restartServer': () => session.restart(),
    'dice.showLog': () => session.log.show(),
    'dice.preview': (place?: Place) => preview.open(place),
    'dice.previewApply': () => preview.apply(),
    'dice.previewLeave': () => preview.leave(),
  };
  for (const [name, action] of Object.entries(own)) {
    context.subscriptions.push(vscode.commands.registerCommand(name, action));
  }
  for (const command of generated.commands as Command[]) {
    const action = (...args: unknown[]) => execute(session, evidence, command, args);
    context.subscriptions.push(vscode.commands.registerCommand(command.command, action));
  }
}

/** Runs a command of the server; without an argument it is meant for the cursor's place. */
async function execute(session: Session, evidence: EvidencePanel, command: Command, args: unknown[]): Promise<unknown> {
  await session.start(); // while it starts, it is not known what the server takes
  if (!session.client) {
    return undefined;
  }
  if (!session.knows(command.command)) {
    void vscode.window.showWarningMessage(`DICE: this dice-ls is too old for "${command.title}"; "DICE: Install the server" updates it.`);
    return undefined;
  }
  // Without `show`, which asks the server to open a document: what there is to show is shown here.
  const given = isPlace(args[0]) ? [{ ...args[0], show: undefined }] : place(session, command);
  if (!given) {
    void vscode.window.showInformationMessage('DICE: put the cursor into a kernel or a PyTorch module first.');
    return undefined;
  }
  try {
    const answer: unknown = await session.client.sendRequest(ExecuteCommandRequest.type, {
      command: command.command,
      arguments: given,
    });
    await show(session, evidence, command.command, answer);
    return answer;
  } catch (error) {
    void vscode.window.showWarningMessage(`DICE: ${(error as Error).message}`);
    return undefined;
  }
}

/** Menus give a URI object or an event; only what names a hole, a place, a path or a document is an argument. */
function isPlace(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !('scheme' in value) && ['hole', 'position', 'range', 'path'].some((key) => key in value);
}

function place(session: Session, command: Command): unknown[] | undefined {
  const editor = vscode.window.activeTextEditor;
  if (command.where === 'none') {
    return [];
  }
  if (!editor || !session.client) {
    return command.where === 'workspace' ? [] : undefined;
  }
  const convert = session.client.code2ProtocolConverter;
  const uri = convert.asUri(editor.document.uri);
  if (command.where === 'workspace') {
    return [{ uri }];
  }
  if (command.where === 'selection') {
    return [{ uri, range: convert.asRange(editor.selection) }];
  }
  return [{ uri, position: convert.asPosition(editor.selection.active) }];
}

async function show(session: Session, evidence: EvidencePanel, command: string, answer: unknown): Promise<void> {
  if (command === 'dice.showEvidence' && answer) {
    evidence.show(answer as Evidence);
  } else if (command === 'dice.showTrace' && answer) {
    await evidence.showTrace(answer as { hole: string; candidate: number });
  } else if (command === 'dice.status' && answer) {
    void vscode.window.showInformationMessage(describe(answer as Status));
  } else if (command === 'dice.selectCheckpoint') {
    await choose(session, answer as { checkpoint: string; choices: { path: string | null; title: string }[] });
  }
}

async function choose(
  session: Session,
  answer: { checkpoint: string; choices?: { path: string | null; title: string }[] },
): Promise<void> {
  if (!answer.choices) {
    return;
  }
  const items = answer.choices.map((one) => ({ label: one.title, description: one.path ?? '', path: one.path }));
  const other = { label: 'Another folder...', description: '', path: undefined };
  const chosen = await vscode.window.showQuickPick<vscode.QuickPickItem & { path?: string | null }>([...items, other], {
    title: 'DICE: the model to use',
  });
  let path = chosen?.path;
  if (chosen && path === undefined) {
    path = (await vscode.window.showOpenDialog({ canSelectFolders: true, canSelectFiles: false }))?.[0]?.fsPath;
  }
  if (chosen && path !== undefined) {
    await session.client?.sendRequest(ExecuteCommandRequest.type, { command: 'dice.selectCheckpoint', arguments: [{ path }] });
  }
}
