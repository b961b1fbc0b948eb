// A verified rewrite beside the code it would replace: a diff editor with the evidence in its title, applied by a button.
import * as vscode from 'vscode';
import { isRewrite, type Place } from './middleware';
import type { Session } from './session';

const SCHEME = 'dice-preview';
const REWRITE = vscode.CodeActionKind.RefactorRewrite.value;

interface Offer {
  document: vscode.TextDocument;
  version: number;
  action: vscode.CodeAction;
  edits: vscode.TextEdit[];
}

export class Preview implements vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly offers = new Map<string, Offer>();
  private readonly parts: vscode.Disposable[];
  private count = 0;

  constructor(private readonly session: Session) {
    this.parts = [
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, {
        provideTextDocumentContent: (uri) => this.texts.get(uri.toString()) ?? '',
      }),
      vscode.workspace.onDidCloseTextDocument((document) => this.forget(document.uri)),
    ];
  }

  /** Opens a rewrite at a place (the cursor's, when none is given): the one with the place's title, or one that is picked. */
  async open(place?: Place): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    const at = place?.uri ? vscode.Uri.parse(place.uri) : editor?.document.uri;
    await this.session.start();
    if (!at || !this.session.client) {
      return;
    }
    const document = await vscode.workspace.openTextDocument(at);
    const start = place?.uri ? new vscode.Position(place.line, place.character) : editor?.selection.active;
    const actions = await rewrites(document.uri, new vscode.Range(start!, start!));
    if (actions.length === 0) {
      void vscode.window.showInformationMessage('DICE: no verified rewrite here; "Find a faster version" searches for one.');
      return;
    }
    // What was offered may have been replaced by something better since the menu was opened.
    const action = actions.find((one) => one.title === place?.title) ?? (await pick(actions));
    const edits = action?.edit?.get(document.uri);
    if (action && edits) {
      await this.show({ document, version: document.version, action, edits });
    }
  }

  private async show(offer: Offer): Promise<void> {
    this.count += 1;
    const target = vscode.Uri.from({ scheme: SCHEME, path: offer.document.uri.path, query: String(this.count) });
    this.texts.set(target.toString(), applied(offer.document, offer.edits));
    this.offers.set(target.toString(), offer);
    const first = new vscode.Position(offer.edits[0].range.start.line, 0);
    await vscode.commands.executeCommand('vscode.diff', offer.document.uri, target, offer.action.title, {
      preview: true,
      selection: new vscode.Range(first, first),
    });
  }

  /** Applies what is previewed, unless the text has changed under it. */
  async apply(): Promise<void> {
    const shown = this.current();
    if (!shown) {
      return;
    }
    const offer = shown.offer;
    if (offer.document.isClosed || offer.document.version !== offer.version) {
      void vscode.window.showWarningMessage('DICE: the file was edited since this preview; nothing was applied.');
      return;
    }
    await this.leave();
    const edit = new vscode.WorkspaceEdit();
    edit.set(offer.document.uri, offer.edits);
    await vscode.workspace.applyEdit(edit, { isRefactoring: true });
    await vscode.window.showTextDocument(offer.document);
  }

  /** Closes the preview and changes nothing. */
  async leave(): Promise<void> {
    const shown = this.current();
    if (shown) {
      await vscode.window.tabGroups.close(shown.tab);
      this.forget(shown.uri);
    }
  }

  private current(): { tab: vscode.Tab; uri: vscode.Uri; offer: Offer } | undefined {
    const tab = vscode.window.tabGroups.activeTabGroup.activeTab;
    const uri = tab?.input instanceof vscode.TabInputTextDiff ? tab.input.modified : undefined;
    const offer = uri && this.offers.get(uri.toString());
    return tab && uri && offer ? { tab, uri, offer } : undefined;
  }

  private forget(uri: vscode.Uri): void {
    this.texts.delete(uri.toString());
    this.offers.delete(uri.toString());
  }

  dispose(): void {
    vscode.Disposable.from(...this.parts).dispose();
  }
}

/** The server's rewrites at a place, resolved. */
async function rewrites(uri: vscode.Uri, range: vscode.Range): Promise<vscode.CodeAction[]> {
  const found = await vscode.commands.executeCommand<(vscode.CodeAction | vscode.Command)[]>(
    'vscode.executeCodeActionProvider',
    uri,
    range,
    REWRITE,
    20,
  );
  const actions = found.filter((one): one is vscode.CodeAction => 'edit' in one && one.edit !== undefined);
  return actions.filter((one) => isRewrite(one.title) && one.edit?.has(uri));
}

async function pick(actions: vscode.CodeAction[]): Promise<vscode.CodeAction | undefined> {
  if (actions.length === 1) {
    return actions[0];
  }
  const items = actions.map((action) => ({ label: action.title, action }));
  return (await vscode.window.showQuickPick(items, { title: 'DICE: verified rewrites' }))?.action;
}

/** The document's text with `edits`, which do not overlap. */
function applied(document: vscode.TextDocument, edits: vscode.TextEdit[]): string {
  let text = document.getText();
  const later = [...edits].sort((a, b) => b.range.start.compareTo(a.range.start));
  for (const edit of later) {
    const [start, end] = [document.offsetAt(edit.range.start), document.offsetAt(edit.range.end)];
    text = text.slice(0, start) + edit.newText + text.slice(end);
  }
  return text;
}
