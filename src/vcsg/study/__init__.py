"""The study: methods compared fairly on a workload, with records, tables, figures and a report."""
