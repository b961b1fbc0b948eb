--- The server again: politely when it is asked for, by itself after a crash, but not for ever.
local M = {}

local AGAIN, SECONDS = 3, 180

local wanted = false
---@type number[]
local crashes = {}

--- Stops the server and starts it again for every buffer it was attached to.
function M.now()
  local client = require('dice').client()
  if not client then
    return vim.lsp.enable('dice')
  end
  wanted = true
  client:stop()
  vim.defer_fn(function()
    if not client:is_stopped() then
      client:stop(true)
    end
  end, 3000)
end

--- After the server has ended.
---@param code integer
---@param signal integer
function M.exited(code, signal)
  if vim.v.exiting ~= vim.NIL then
    return
  end
  local crashed = code ~= 0 or signal ~= 0
  if wanted then
    wanted = false
  elseif not crashed then
    return
  else
    local now = vim.uv.now() / 1000
    crashes = vim.tbl_filter(function(at)
      return now - at < SECONDS
    end, crashes)
    table.insert(crashes, now)
    local how = signal ~= 0 and 'by signal ' .. signal or 'with exit status ' .. code
    if #crashes > AGAIN then
      local message = ('dice-ls ended %s, %d times in three minutes; :Dice restart starts it again'):format(how, #crashes)
      return vim.notify(message, vim.log.levels.ERROR)
    end
    vim.notify('dice-ls ended ' .. how .. '; it is started again', vim.log.levels.WARN)
  end
  vim.lsp.enable('dice')
end

return M
