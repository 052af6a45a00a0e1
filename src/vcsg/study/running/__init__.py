"""Running a study: its tasks, the processes that share them, and the records that every run writes.

The modules here may use the plan of a study (the modules of `vcsg.study` itself) and `vcsg.training`. They know nothing
of tables, figures and the report, which are made from the records alone.
"""
