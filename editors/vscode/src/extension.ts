// The extension's entry point and its wiring: nothing is decided here.
import * as vscode from 'vscode';
import { registerCommands } from './commands';
import { EvidencePanel } from './evidence';
import { Preview } from './preview';
import { Session } from './session';
import { StatusItem } from './statusItem';

export interface Api {
  session: Session;
  evidence: EvidencePanel;
}

export async function activate(context: vscode.ExtensionContext): Promise<Api> {
  const session = new Session(context);
  const evidence = new EvidencePanel(context.extensionUri, session);
  const preview = new Preview(session);
  context.subscriptions.push(session, evidence, preview, new StatusItem(session));
  registerCommands(context, session, evidence, preview);
  context.subscriptions.push(
    vscode.workspace.onDidGrantWorkspaceTrust(() => session.restart()),
    vscode.workspace.onDidChangeConfiguration(async (change) => {
      if (session.needsRestart(change)) {
        await session.restart();
      }
    }),
  );
  await session.start();
  return { session, evidence };
}

export function deactivate(): void {
  // The session is a subscription: it stops the server itself.
}
