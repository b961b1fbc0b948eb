--- Code lenses stay fresh: Neovim 0.11 only fetches them when asked.
local M = {}

function M.refresh_all(client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  for buffer in pairs(client and client.attached_buffers or {}) do
    M.refresh(buffer)
  end
end

---@param buffer integer
function M.refresh(buffer)
  if vim.api.nvim_buf_is_loaded(buffer) then
    vim.lsp.codelens.refresh({ bufnr = buffer })
  end
end

return M
