--- `:checkhealth dice`: the client, the server, and what `dice doctor` says about this machine.
local M = {}

local function command()
  local config = vim.lsp.config.dice
  return config and type(config.cmd) == 'table' and config.cmd[1] or 'dice-ls'
end

local function doctor(server)
  local dice = vim.fs.joinpath(vim.fs.dirname(vim.fn.exepath(server)), 'dice')
  local ran, done = pcall(function()
    return vim.system({ dice, 'doctor', '--json' }, { text = true }):wait(60000)
  end)
  local read, report = pcall(vim.json.decode, ran and done.stdout or '')
  if not read then
    return vim.health.warn('`dice doctor` gives no report')
  end
  local say = { ok = vim.health.ok, absent = vim.health.warn, missing = vim.health.error }
  for _, check in ipairs(report.checks) do
    local line = check.name .. ': ' .. check.detail
    if check.advice ~= '' then
      say[check.state](line, { check.advice })
    else
      say[check.state](line)
    end
  end
end

function M.check()
  vim.health.start('DICE: client')
  if vim.fn.has('nvim-0.11') == 1 then
    vim.health.ok('Neovim ' .. tostring(vim.version()))
  else
    return vim.health.error('Neovim 0.11 or newer is needed', { 'see "Older versions" in :help dice' })
  end
  local client = require('dice').client()
  if client then
    vim.health.ok('attached; ' .. require('dice').statusline())
  else
    vim.health.info("not running: it starts with the first CUDA, C++ or Python file after require('dice').setup()")
  end

  vim.health.start('DICE: server')
  local server = command()
  if vim.fn.executable(server) == 0 then
    return vim.health.error(server .. ' cannot be run', {
      '`make install` in the repository, or `pip install .[engine]` there with a Python on the PATH',
      "or name it: require('dice').setup({ cmd = { '/path/to/dice-ls' } })",
    })
  end
  local done = vim.system({ server, '--version' }, { text = true }):wait(20000)
  vim.health.ok(vim.trim(done.stdout or '') .. ' at ' .. vim.fn.exepath(server))

  vim.health.start('DICE: this machine')
  doctor(server)
end

return M
