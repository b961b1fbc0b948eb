--- `:Dice NAME`: the server's commands by their names without `dice.`, and what is done here.
local M = {}

local HERE = {
  preview = function()
    require('dice.preview').open()
  end,
  restart = function()
    require('dice.restart').now()
  end,
}

--- What is shown instead of thrown away when the command has answered.
local SHOW = {
  ['dice.showEvidence'] = function(answer)
    require('dice.evidence').show(answer)
  end,
  ['dice.showTrace'] = function(answer)
    require('dice.trace').show(answer)
  end,
  ['dice.status'] = function(answer)
    local parts = { 'DICE is ' .. answer.state }
    for _, key in ipairs({ 'running', 'device', 'waiting_for', 'message' }) do
      if (answer[key] or '') ~= '' then
        table.insert(parts, answer[key])
      end
    end
    vim.notify(table.concat(parts, ', '))
  end,
}

local function server_commands(client)
  local provider = client and client.server_capabilities.executeCommandProvider
  return provider and provider.commands or {}
end

--- Names that begin with `start`, for completion.
---@param start string
---@return string[]
function M.complete(start)
  local names = vim.tbl_keys(HERE)
  for _, name in ipairs(server_commands(require('dice').client())) do
    table.insert(names, (name:gsub('^dice%.', '')))
  end
  table.sort(names)
  return vim.tbl_filter(function(name)
    return vim.startswith(name, start)
  end, names)
end

--- Runs a command of the server for the cursor's place; `done` gets its answer.
---@param name string with `dice.`
---@param done? fun(answer: any)
function M.execute(name, done)
  local client = require('dice').client()
  if not client then
    return vim.notify('dice-ls does not run here: open a CUDA or Python file, or see :checkhealth dice', vim.log.levels.WARN)
  end
  local place = vim.lsp.util.make_position_params(0, client.offset_encoding)
  local argument = { uri = place.textDocument.uri, position = place.position }
  local mode = vim.api.nvim_get_mode().mode
  if mode == 'v' or mode == 'V' then
    argument.range = vim.lsp.util.make_given_range_params(nil, nil, 0, client.offset_encoding).range
  end
  local named = client.attached_buffers[vim.api.nvim_get_current_buf()]
  local params = { command = name, arguments = named and { argument } or {} }
  client:request('workspace/executeCommand', params, function(failed, answer)
    if failed then
      vim.notify('DICE: ' .. failed.message, vim.log.levels.WARN)
    elseif done then
      done(answer)
    end
  end)
end

---@param name string what follows `:Dice`
function M.run(name)
  name = vim.trim(name)
  if name == '' then
    name = 'status'
  end
  if HERE[name] then
    return HERE[name]()
  end
  if not vim.tbl_contains(M.complete(''), name) and require('dice').client() then
    return vim.notify('DICE: no command ' .. name .. '; known: ' .. table.concat(M.complete(''), ', '), vim.log.levels.ERROR)
  end
  M.execute('dice.' .. name, SHOW['dice.' .. name])
end

return M
