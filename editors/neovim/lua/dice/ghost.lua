--- Ghost text: `textDocument/inlineCompletion` drawn with an extmark, as Neovim 0.11 has no client for it.
local M = {}

local namespace = vim.api.nvim_create_namespace('dice.ghost')
local AUTOMATIC, INVOKED = 2, 1

---@class dice.Ghost What is shown: `text` follows the cursor; `tail` bytes after the cursor are replaced by it.
---@field buffer integer
---@field row integer 0-based
---@field column integer in bytes
---@field line string the cursor's line as it was
---@field items table[] `{ text, tail, command }`
---@field index integer

---@type dice.Ghost?
local shown
---@type { client: vim.lsp.Client, id: integer, tick: integer, row: integer, column: integer }?
local pending
local tick = -1

local function cursor()
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  return row - 1, column, vim.api.nvim_get_current_line()
end

local function clear()
  if shown and vim.api.nvim_buf_is_valid(shown.buffer) then
    vim.api.nvim_buf_clear_namespace(shown.buffer, namespace, 0, -1)
  end
  shown = nil
end

local function cancel()
  if pending then
    pending.client:cancel_request(pending.id)
    pending = nil
  end
end

local function draw()
  assert(shown)
  vim.api.nvim_buf_clear_namespace(shown.buffer, namespace, 0, -1)
  local lines = vim.split(shown.items[shown.index].text, '\n', { plain = true })
  local below = {}
  for number = 2, #lines do
    table.insert(below, { { lines[number], 'DiceGhost' } })
  end
  vim.api.nvim_buf_set_extmark(shown.buffer, namespace, shown.row, shown.column, {
    virt_text = { { lines[1], 'DiceGhost' } },
    virt_text_pos = 'inline',
    virt_lines = #below > 0 and below or nil,
    hl_mode = 'combine',
  })
end

--- An item as text after the cursor, or nil when it does not begin with what stands before the cursor.
local function at_cursor(item, row, column, line, encoding)
  local text = type(item.insertText) == 'table' and item.insertText.value or item.insertText
  text = text:gsub('\r\n', '\n')
  local tail = 0
  if item.range then
    local from, to = item.range.start, item.range['end']
    if from.line ~= row or to.line ~= row then
      return nil
    end
    local typed = line:sub(vim.str_byteindex(line, encoding, from.character, false) + 1, column)
    if text:sub(1, #typed) ~= typed then
      return nil
    end
    text = text:sub(#typed + 1)
    tail = math.max(0, vim.str_byteindex(line, encoding, to.character, false) - column)
  end
  return text ~= '' and { text = text, tail = tail, command = item.command } or nil
end

local function answered(client, buffer, result)
  pending = nil
  if vim.api.nvim_get_current_buf() ~= buffer or vim.api.nvim_get_mode().mode:sub(1, 1) ~= 'i' then
    return
  end
  local row, column, line = cursor()
  local items = {}
  for _, item in ipairs(result and (result.items or result) or {}) do
    table.insert(items, at_cursor(item, row, column, line, client.offset_encoding))
  end
  clear()
  if #items > 0 then
    shown = { buffer = buffer, row = row, column = column, line = line, items = items, index = 1 }
    draw()
  end
end

---@param kind integer 1 asked for, 2 automatic
local function ask(kind)
  local buffer = vim.api.nvim_get_current_buf()
  local client = vim.lsp.get_clients({ name = 'dice', bufnr = buffer })[1]
  if not client then
    return
  end
  cancel()
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = kind }
  local version = vim.api.nvim_buf_get_changedtick(buffer)
  local sent, id = client:request('textDocument/inlineCompletion', params, function(_, result)
    if vim.api.nvim_buf_is_valid(buffer) and vim.api.nvim_buf_get_changedtick(buffer) == version then
      answered(client, buffer, result)
    end
  end, buffer)
  if sent and id then
    local row, column = cursor()
    pending = { client = client, id = id, tick = version, row = row, column = column }
  end
end

--- Typing what the ghost text says shortens it; anything else hides it.
local function follow()
  assert(shown)
  local row, column, line = cursor()
  if row == shown.row and column == shown.column and line == shown.line then
    return true
  end
  local typed = line:sub(shown.column + 1, column)
  local kept = line == shown.line:sub(1, shown.column) .. typed .. shown.line:sub(shown.column + 1)
  local item = shown.items[shown.index]
  if row ~= shown.row or typed == '' or not kept or item.text:sub(1, #typed) ~= typed or item.text == typed then
    return false
  end
  shown.items = { { text = item.text:sub(#typed + 1), tail = item.tail, command = item.command } }
  shown.index, shown.column, shown.line = 1, column, line
  draw()
  return true
end

--- Whether what was asked for is still about this text and place: one key raises two events.
local function still_asked(now)
  local row, column = cursor()
  return pending and pending.tick == now and pending.row == row and pending.column == column
end

--- After every change and cursor move in insert mode.
function M.moved()
  local now = vim.api.nvim_buf_get_changedtick(0)
  if still_asked(now) then
    return
  end
  local changed = now ~= tick
  tick = now
  if shown and follow() then
    return
  end
  clear()
  cancel()
  if changed then
    ask(AUTOMATIC)
  end
end

local function insert(text, tail)
  assert(shown)
  local row, column = shown.row, shown.column
  vim.o.undolevels = vim.o.undolevels -- one undo step of its own
  local lines = vim.split(text, '\n', { plain = true })
  vim.api.nvim_buf_set_text(shown.buffer, row, column, row, column + tail, lines)
  local last = #lines == 1 and column + #text or #lines[#lines]
  vim.api.nvim_win_set_cursor(0, { row + #lines, last })
  tick = vim.api.nvim_buf_get_changedtick(0)
end

--- Inserts the part of the ghost text that `cut` finds, all of it when `cut` is nil.
local function accept(cut)
  if not shown then
    return
  end
  local item = shown.items[shown.index]
  local part = cut and item.text:match(cut) or item.text
  local rest = item.text:sub(#part + 1)
  insert(part, rest == '' and item.tail or 0)
  if rest ~= '' then
    local row, column, line = cursor()
    local left = { text = rest, tail = item.tail, command = item.command }
    shown = { buffer = shown.buffer, row = row, column = column, line = line, items = { left }, index = 1 }
    draw()
    return
  end
  clear()
  local client = vim.lsp.get_clients({ name = 'dice', bufnr = 0 })[1]
  if item.command and client then
    client:exec_cmd(item.command, { bufnr = vim.api.nvim_get_current_buf() })
  end
end

function M.accept()
  accept(nil)
end

function M.accept_word()
  local text = shown and shown.items[shown.index].text or ''
  accept(text:match('^%s*[%w_]') and '^%s*[%w_]+' or '^%s*[^%w_%s]*')
end

function M.accept_line()
  accept('^\n?[^\n]*')
end

function M.next()
  if shown then
    shown.index = shown.index % #shown.items + 1
    draw()
  end
end

function M.dismiss()
  clear()
  cancel()
end

function M.request()
  ask(INVOKED)
end

--- The ghost text that is shown, or nil.
---@return string?
function M.text()
  return shown and shown.items[shown.index].text
end

return M
