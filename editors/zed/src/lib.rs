use zed_extension_api::{self as zed, Command, LanguageServerId, Result, Worktree};

struct Dice;

impl zed::Extension for Dice {
    fn new() -> Self {
        Dice
    }

    /// The server of the user's own PATH: never one that lies in the worktree.
    fn language_server_command(&mut self, _id: &LanguageServerId, worktree: &Worktree) -> Result<Command> {
        let command = worktree
            .which("dice-ls")
            .ok_or("dice-ls is not on the PATH: pip install 'dice-ls[engine]'")?;
        Ok(Command { command, args: vec![], env: worktree.shell_env() })
    }
}

zed::register_extension!(Dice);
