-- What is there before the first file is opened: the command, the highlights and the `<Plug>` keys.
if vim.g.loaded_dice then
  return
end
vim.g.loaded_dice = 1

vim.api.nvim_set_hl(0, 'DiceGhost', { default = true, link = 'Comment' })
vim.api.nvim_set_hl(0, 'DiceLens', { default = true, link = 'Comment' })

vim.api.nvim_create_user_command('Dice', function(arguments)
  require('dice.commands').run(arguments.args)
end, {
  nargs = '?',
  desc = 'Verified rewrites of CUDA kernels; :help dice',
  complete = function(start)
    return require('dice.commands').complete(start)
  end,
})

for name, what in pairs({
  accept = 'accept all of the ghost text',
  accept_word = 'accept one word of the ghost text',
  accept_line = 'accept one line of the ghost text',
  next = 'show the next ghost text',
  dismiss = 'hide the ghost text',
  request = 'ask for ghost text here',
}) do
  vim.keymap.set('i', '<Plug>(dice-' .. name:gsub('_', '-') .. ')', function()
    require('dice.ghost')[name]()
  end, { desc = 'DICE: ' .. what })
end
