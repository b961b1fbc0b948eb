--- Code lenses above the lines they belong to, always fresh: Neovim 0.11 fetches them only when asked and draws them
--- behind the line. `vim.lsp.codelens.run()` works on them.
local M = {}

local namespace = vim.api.nvim_create_namespace('dice.lens')

function M.refresh_all(client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  for buffer in pairs(client and client.attached_buffers or {}) do
    M.refresh(buffer)
  end
end

local function draw(buffer, lenses)
  vim.api.nvim_buf_clear_namespace(buffer, namespace, 0, -1)
  local last = vim.api.nvim_buf_line_count(buffer) - 1
  for _, lens in ipairs(lenses) do
    local row = math.min(lens.range.start.line, last)
    local text = { { lens.command.title, 'DiceLens' } }
    if row == 0 then
      -- Lines above the first one are not shown.
      vim.api.nvim_buf_set_extmark(buffer, namespace, row, 0, { virt_text = { { ' ' }, text[1] } })
    else
      local indent = vim.api.nvim_buf_get_lines(buffer, row, row + 1, false)[1]:match('^%s*')
      table.insert(text, 1, { indent })
      vim.api.nvim_buf_set_extmark(buffer, namespace, row, 0, { virt_lines = { text }, virt_lines_above = true })
    end
  end
end

---@param buffer integer
function M.refresh(buffer)
  local client = vim.lsp.get_clients({ name = 'dice', bufnr = buffer, method = 'textDocument/codeLens' })[1]
  if not client or not vim.api.nvim_buf_is_loaded(buffer) then
    return
  end
  local params = { textDocument = vim.lsp.util.make_text_document_params(buffer) }
  client:request('textDocument/codeLens', params, function(failed, lenses)
    if not failed and vim.api.nvim_buf_is_loaded(buffer) then
      vim.lsp.codelens.save(lenses, buffer, client.id)
      draw(buffer, lenses or {})
    end
  end, buffer)
end

---@param buffer integer
function M.clear(buffer)
  vim.api.nvim_buf_clear_namespace(buffer, namespace, 0, -1)
end

return M
