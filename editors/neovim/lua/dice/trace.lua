--- The denoising trace of one candidate: how many tokens of each block were settled by each forward pass.
local M = {}

local MASK = '░'

--- The candidate's text after `step` forward passes: what was not settled by then is masked.
---@param trace table the result of `dice.showTrace`
---@param step integer passes over all blocks together
---@return string
function M.text_at(trace, step)
  local passes, last = {}, -1
  for _, token in ipairs(trace.tokens) do
    passes[token.block] = math.max(passes[token.block] or 0, token.step + 1)
    last = math.max(last, token.block)
  end
  local before, started = 0, {}
  for block = 0, last do
    started[block] = before
    before = before + (passes[block] or 0)
  end
  local parts = {}
  for _, token in ipairs(trace.tokens) do
    local settled = started[token.block] + token.step < step
    local masked = token.text:gsub('[^%s\128-\191]', MASK):gsub('[\128-\191]', '')
    if settled then
      table.insert(parts, token.text)
    elseif started[token.block] < step or token.text:find('\n') then
      table.insert(parts, masked)
    end
  end
  return table.concat(parts)
end

---@param trace table
---@return integer
function M.passes(trace)
  local of, sum = {}, 0
  for _, token in ipairs(trace.tokens) do
    of[token.block] = math.max(of[token.block] or 0, token.step + 1)
  end
  for _, count in pairs(of) do
    sum = sum + count
  end
  return sum
end

---@param trace table
---@param step? integer
function M.show(trace, step)
  if type(trace) ~= 'table' or #trace.tokens == 0 then
    return vim.notify('DICE: there is no trace here yet', vim.log.levels.INFO)
  end
  local total = M.passes(trace)
  step = math.max(0, math.min(step or total, total))
  local function to(where)
    return function()
      M.show(trace, where)
    end
  end
  require('dice.float').open({
    lines = vim.split(M.text_at(trace, step), '\n', { plain = true }),
    filetype = 'cuda',
    title = ('DICE: candidate %d, pass %d of %d'):format(trace.candidate, step, total),
    footer = 'h back, l on, 0 start, $ end, q closes',
    keys = { h = to(step - 1), l = to(step + 1), ['0'] = to(0), ['$'] = to(total) },
  })
end

return M
