// Where the editor goes beyond what the server sends: rewrites are shown before they are applied.
import * as vscode from 'vscode';
import type { Middleware } from 'vscode-languageclient/node';

export interface Place {
  uri: string;
  line: number;
  character: number;
  title?: string;
}

export const isRewrite = (title: string): boolean => title.startsWith('Rewrite `');

export const middleware: Middleware = {
  async provideCodeActions(document, range, context, token, next) {
    const found = (await next(document, range, context, token)) ?? [];
    return found.flatMap((action): (vscode.CodeAction | vscode.Command)[] => {
      if (!(action instanceof vscode.CodeAction)) {
        return [action];
      }
      if (action.command) {
        action.edit ??= nothingToResolve();
      }
      if (!isRewrite(action.title) || action.disabled) {
        return [action];
      }
      const preview = new vscode.CodeAction(`Preview: ${action.title}`, action.kind);
      preview.edit = nothingToResolve();
      preview.isPreferred = action.isPreferred;
      action.isPreferred = undefined;
      preview.command = command(document.uri, range.start, action.title);
      return [preview, action];
    });
  },

  async provideCodeLenses(document, token, next) {
    const found = (await next(document, token)) ?? [];
    for (const lens of found) {
      if (lens.command?.command === 'dice.applySuggestion') {
        lens.command = { ...command(document.uri, lens.range.start), title: lens.command.title };
      }
    }
    return found;
  },
};

/**
 * VS Code resolves an action without an edit after it was chosen. When it asks for new actions in the meantime, as it does
 * after a cursor move or a diagnostic, the chosen one is gone, and with it the arguments of its command: nothing happens.
 */
const nothingToResolve = () => new vscode.WorkspaceEdit();

function command(uri: vscode.Uri, at: vscode.Position, title?: string): vscode.Command {
  const place: Place = { uri: uri.toString(), line: at.line, character: at.character, title };
  return { title: 'Preview', command: 'dice.preview', arguments: [place] };
}
