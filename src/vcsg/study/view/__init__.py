"""What records say: numbers over seeds, findings in sentences, tables for a terminal, and figures for print.

The modules here read records and nothing else: they run nothing, and they need neither the workload nor its data.
"""
