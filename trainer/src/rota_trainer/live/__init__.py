"""Training that goes on while workers come and go: `rota_trainer.torch.live`.

`sharing` is the arithmetic: which samples, to whom, with what weight; `samples` loads them.
`group` opens and breaks the process group of a generation, `meeting` brings its members together,
`transfer` gives newcomers the state, `membership` hears from the daemon who belongs to it.
`joining` makes a generation of all this, and `training` is the object that a script holds: its
steps survive a generation that breaks.
"""
