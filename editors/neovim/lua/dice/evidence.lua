--- The evidence of one hole in a floating window, as the server words it.
local M = {}

---@param evidence table the result of `dice.showEvidence`
function M.show(evidence)
  if type(evidence) ~= 'table' then
    return vim.notify('DICE: there is no evidence here yet', vim.log.levels.INFO)
  end
  local buffer, window = require('dice.float').open({
    lines = vim.split(vim.trim(evidence.markdown), '\n', { plain = true }),
    filetype = 'markdown',
    title = 'DICE: evidence for ' .. evidence.name,
    footer = 'q closes',
  })
  vim.wo[window].conceallevel, vim.wo[window].concealcursor = 2, 'nc'
  pcall(vim.treesitter.start, buffer, 'markdown')
end

return M
