"""The study: methods compared fairly on a workload, with records, tables, figures and a report.

The modules at the top say what a study is: targets, methods, settings, budgets, protocols, the search and the plan.
`running` makes the runs of a plan and writes their records. `view` and `report` show records, and never run anything.
`compare`, `reproduce` and `outcome` are what the command calls. Only the command imports anything from here.
"""
