--- One floating window with text, closed by `q` or `<Esc>`.
local M = {}

---@class dice.Float
---@field lines string[]
---@field filetype string
---@field title string
---@field footer? string
---@field keys? table<string, fun()>

---@param float dice.Float
---@return integer buffer, integer window
function M.open(float)
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, false, float.lines)
  vim.bo[buffer].filetype = float.filetype
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].bufhidden = 'wipe'
  local widest = 0
  for _, line in ipairs(float.lines) do
    widest = math.max(widest, vim.fn.strdisplaywidth(line))
  end
  local width = math.max(20, math.min(math.max(widest, #float.title + 2), vim.o.columns - 6, 110))
  local function placed(height)
    height = math.max(1, math.min(height, vim.o.lines - 6))
    local row, col = math.floor((vim.o.lines - height) / 2) - 1, math.floor((vim.o.columns - width) / 2)
    return { relative = 'editor', row = row, col = col, width = width, height = height }
  end
  local window = vim.api.nvim_open_win(buffer, true, vim.tbl_extend('error', placed(#float.lines), {
    style = 'minimal',
    border = 'rounded',
    title = ' ' .. float.title .. ' ',
    footer = float.footer and ' ' .. float.footer .. ' ' or nil,
  }))
  vim.wo[window].wrap, vim.wo[window].linebreak = true, true
  vim.wo[window].breakindent, vim.wo[window].breakindentopt = true, 'shift:2'
  vim.api.nvim_win_set_config(window, placed(vim.api.nvim_win_text_height(window, {}).all))
  local function close()
    if vim.api.nvim_win_is_valid(window) then
      vim.api.nvim_win_close(window, true)
    end
  end
  local keys = vim.tbl_extend('keep', float.keys or {}, { q = function() end, ['<Esc>'] = function() end })
  for key, action in pairs(keys) do
    vim.keymap.set('n', key, function()
      close()
      action()
    end, { buffer = buffer, nowait = true })
  end
  return buffer, window
end

return M
