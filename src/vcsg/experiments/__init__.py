"""Experiments that answer one question each, from runs to a page: how calls grow with n and 1/ε, and which part of a
method does what. Their records are small files, so that a command that was interrupted goes on where it was."""
