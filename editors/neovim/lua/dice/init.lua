--- DICE: verified rewrites of CUDA kernels. Needs Neovim 0.11 and `dice-ls`; see `:help dice`.
local M = {}

---@class dice.Keys Insert mode keys; false leaves one out.
---@field accept string|false
---@field accept_word string|false
---@field accept_line string|false
---@field next string|false
---@field dismiss string|false
---@field request string|false

---@class dice.Options
---@field cmd? string[] How the server is started. Default: the `dice-ls` on the PATH, else the repository's own.
---@field settings? table Settings of the server, see |dice-settings|.
---@field keys? dice.Keys|false

---@type dice.Keys
local KEYS = {
  accept = '<M-l>',
  accept_word = '<M-w>',
  accept_line = '<M-j>',
  next = '<M-n>',
  dismiss = '<M-e>',
  request = '<M-g>',
}

---@type dice.Keys|false
M.keys = KEYS

--- The server's program: the one on the PATH, else the one that `make install` made in the repository of this plugin.
---@return string
function M.program()
  local here = vim.fs.dirname(debug.getinfo(1, 'S').source:sub(2))
  local environment = vim.fs.normalize(vim.fs.joinpath(here, '..', '..', '..', '..', '.venv'))
  for _, program in ipairs({ 'dice-ls', environment .. '/bin/dice-ls', environment .. '/Scripts/dice-ls.exe' }) do
    if vim.fn.executable(program) == 1 then
      return program
    end
  end
  return 'dice-ls'
end

--- Starts the server for CUDA, C++ and Python files from now on.
---@param options? dice.Options
function M.setup(options)
  options = options or {}
  M.keys = options.keys ~= false and vim.tbl_extend('force', KEYS, options.keys or {})
  local settings = options.settings or vim.empty_dict()
  vim.lsp.config('dice', { cmd = options.cmd, init_options = settings, settings = { dice = settings } })
  vim.lsp.enable('dice')
end

--- The running client of a buffer, or of any buffer when this one has none.
---@param buffer? integer
---@return vim.lsp.Client?
function M.client(buffer)
  return vim.lsp.get_clients({ name = 'dice', bufnr = buffer or 0 })[1] or vim.lsp.get_clients({ name = 'dice' })[1]
end

--- For a status line: `DICE checking, NVIDIA H200, 2 in queue`; empty where no server runs.
---@return string
function M.statusline()
  return require('dice.status').text()
end

return M
