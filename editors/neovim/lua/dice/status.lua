--- What the server says about itself with `dice/status`, by client.
local M = {}

---@type table<integer, table>
local known = {}

---@param client_id integer
---@param status table state, device, queue, message
function M.set(client_id, status)
  known[client_id] = status
  M.changed()
end

---@param client_id integer
function M.forget(client_id)
  known[client_id] = nil
  M.changed()
end

function M.changed()
  vim.schedule(function()
    vim.api.nvim_exec_autocmds('User', { pattern = 'DiceStatus', modeline = false })
    vim.cmd.redrawstatus({ bang = true })
  end)
end

--- The last status of the client, or nil when it has sent none.
---@param client? vim.lsp.Client
---@return table?
function M.of(client)
  return client and known[client.id]
end

---@return string
function M.text()
  local client = require('dice').client()
  if not client then
    return ''
  end
  local status = known[client.id] or { state = 'idle' }
  local parts = { 'DICE ' .. status.state }
  if (status.device or '') ~= '' then
    table.insert(parts, status.device)
  end
  if (status.queue or 0) > 0 then
    table.insert(parts, status.queue .. ' in queue')
  end
  return (table.concat(parts, ', '):gsub('%%', '%%%%'))
end

return M
