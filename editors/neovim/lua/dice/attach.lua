--- What a buffer gets when the server is attached to it.
local M = {}

---@param client vim.lsp.Client
---@param buffer integer
function M.attach(client, buffer)
  local group = vim.api.nvim_create_augroup('dice.' .. buffer, { clear = true })
  local function on(events, action)
    vim.api.nvim_create_autocmd(events, { group = group, buffer = buffer, callback = action })
  end
  if client:supports_method('textDocument/codeLens') then
    on({ 'BufEnter', 'InsertLeave', 'TextChanged' }, function()
      require('dice.lens').refresh(buffer)
    end)
    require('dice.lens').refresh(buffer)
  end
  vim.api.nvim_create_autocmd('LspDetach', { group = group, buffer = buffer, callback = function(detached)
    if detached.data.client_id == client.id then
      require('dice.lens').clear(buffer)
    end
  end })
  if client:supports_method('textDocument/inlineCompletion') then
    local ghost = require('dice.ghost')
    on({ 'TextChangedI', 'CursorMovedI' }, ghost.moved)
    on({ 'InsertLeave', 'BufLeave' }, ghost.dismiss)
    M.map(buffer)
  end
end

function M.map(buffer)
  local keys = require('dice').keys
  for name, key in pairs(keys or {}) do
    if key then
      local plug = '<Plug>(dice-' .. name:gsub('_', '-') .. ')'
      vim.keymap.set('i', key, plug, { buffer = buffer, remap = true, desc = 'DICE: ' .. name:gsub('_', ' ') })
    end
  end
end

return M
