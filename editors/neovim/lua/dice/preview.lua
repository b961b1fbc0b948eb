--- Verified rewrites at the cursor as diffs, with their evidence, before anything is applied.
local M = {}

--- The lines of `buffer` after a workspace edit that only touches this buffer.
local function lines_after(buffer, edit, encoding)
  local uri = vim.uri_from_bufnr(buffer)
  local edits = edit.changes and edit.changes[uri] or {}
  for _, change in ipairs(edit.documentChanges or {}) do
    if change.textDocument and vim.uri_to_bufnr(change.textDocument.uri) == buffer then
      vim.list_extend(edits, change.edits)
    end
  end
  local scratch = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_lines(scratch, 0, -1, false, vim.api.nvim_buf_get_lines(buffer, 0, -1, false))
  vim.lsp.util.apply_text_edits(vim.deepcopy(edits), scratch, encoding)
  local lines = vim.api.nvim_buf_get_lines(scratch, 0, -1, false)
  vim.api.nvim_buf_delete(scratch, { force = true })
  return lines
end

local function diff(before, after)
  local text = vim.diff(table.concat(before, '\n') .. '\n', table.concat(after, '\n') .. '\n', { ctxlen = 3 })
  return vim.split(vim.trim(text), '\n', { plain = true })
end

local function evidence_of(edit)
  local _, annotation = next(edit.changeAnnotations or {})
  return annotation and annotation.description or ''
end

local function with_edits(client, actions, done)
  local found, waiting = {}, 1
  local function one_less()
    waiting = waiting - 1
    if waiting == 0 then
      done(found)
    end
  end
  for place, action in ipairs(actions) do
    if action.edit then
      found[place] = action
    elseif action.data and not action.disabled then
      waiting = waiting + 1
      client:request('codeAction/resolve', action, function(_, resolved)
        found[place] = resolved and resolved.edit and resolved or nil
        one_less()
      end)
    end
  end
  one_less()
end

local function apply(client, buffer, action, version)
  if not vim.api.nvim_buf_is_loaded(buffer) or vim.api.nvim_buf_get_changedtick(buffer) ~= version then
    return vim.notify('DICE: the buffer was edited since this preview; nothing was applied', vim.log.levels.WARN)
  end
  vim.lsp.util.apply_workspace_edit(action.edit, client.offset_encoding)
  if action.command then
    client:exec_cmd(action.command, { bufnr = buffer })
  end
end

--- `version` is the buffer's changedtick that `offers` are about.
local function show(client, buffer, version, offers, index)
  local action = offers[index]
  local before = vim.api.nvim_buf_get_lines(buffer, 0, -1, false)
  local lines = diff(before, lines_after(buffer, action.edit, client.offset_encoding))
  table.insert(lines, 1, '# ' .. evidence_of(action.edit))
  local function to(step)
    return function()
      show(client, buffer, version, offers, (index - 1 + step) % #offers + 1)
    end
  end
  require('dice.float').open({
    lines = lines,
    filetype = 'diff',
    title = ('%d/%d %s'):format(index, #offers, action.title),
    footer = '<CR> apply, n next, p previous, q leave',
    keys = {
      ['<CR>'] = function()
        apply(client, buffer, action, version)
      end,
      n = to(1),
      p = to(-1),
    },
  })
end

--- Opens the preview of the rewrites at the cursor.
function M.open()
  local buffer = vim.api.nvim_get_current_buf()
  local client = vim.lsp.get_clients({ name = 'dice', bufnr = buffer })[1]
  if not client then
    return vim.notify('DICE: no server for this buffer', vim.log.levels.WARN)
  end
  local params = vim.lsp.util.make_range_params(0, client.offset_encoding)
  local version = vim.api.nvim_buf_get_changedtick(buffer)
  params.context = { diagnostics = {}, only = { 'refactor.rewrite' }, triggerKind = 1 }
  client:request('textDocument/codeAction', params, function(failed, actions)
    if failed then
      return vim.notify('DICE: ' .. failed.message, vim.log.levels.WARN)
    end
    with_edits(client, actions or {}, function(found)
      local offers = {}
      for place = 1, #(actions or {}) do
        table.insert(offers, found[place])
      end
      if #offers == 0 then
        return vim.notify('DICE: no verified rewrite here; :Dice findFaster searches for one')
      end
      show(client, buffer, version, offers, 1)
    end)
  end, buffer)
end

return M
