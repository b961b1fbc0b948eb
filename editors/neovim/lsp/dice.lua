-- The language server as `vim.lsp.enable('dice')` finds it. Change it with `vim.lsp.config('dice', {...})`.
local capabilities = vim.lsp.protocol.make_client_capabilities()
capabilities.textDocument.inlineCompletion = { dynamicRegistration = false }
capabilities.workspace.codeLens = { refreshSupport = true }
-- Neovim 0.11 understands versioned edits without saying so; without them a stale edit would be applied.
capabilities.workspace.workspaceEdit.documentChanges = true
capabilities.workspace.workspaceEdit.changeAnnotationSupport = { groupsOnLabel = false }

return {
  cmd = { require('dice').program() },
  filetypes = { 'cuda', 'cpp', 'python' },
  root_markers = { 'dice.toml', 'compile_commands.json', 'pyproject.toml', '.git' },
  capabilities = capabilities,
  handlers = {
    ['dice/status'] = function(_, status, context)
      require('dice.status').set(context.client_id, status)
    end,
    ['workspace/codeLens/refresh'] = function(_, _, context)
      require('dice.lens').refresh_all(context.client_id)
      return vim.NIL
    end,
  },
  -- As a code action, too, the evidence is shown in a window of ours.
  commands = {
    ['dice.showEvidence'] = function(command, context)
      local place = vim.tbl_extend('force', command.arguments[1], { show = vim.NIL })
      local params = { command = command.command, arguments = { place } }
      local client = assert(vim.lsp.get_client_by_id(context.client_id))
      client:request('workspace/executeCommand', params, function(_, evidence)
        require('dice.evidence').show(evidence)
      end)
    end,
  },
  on_attach = function(client, buffer)
    require('dice.attach').attach(client, buffer)
  end,
  on_exit = function(code, signal, client_id)
    require('dice.status').forget(client_id)
    vim.schedule(function()
      require('dice.restart').exited(code, signal)
    end)
  end,
}
