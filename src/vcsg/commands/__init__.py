"""The commands of `vcsg`, one module each: a function whose arguments are what the user may give.

Who lives here: the commands, the options that several of them share, and how a command ends. `vcsg.cli` gives each its
name. A command imports what it needs when it runs, so that the help and the completion of a shell come at once: at the
top of these modules stand typer and the standard library alone.
"""
