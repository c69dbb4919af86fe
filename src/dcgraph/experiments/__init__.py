"""What stands on the library: engine, tasks, report, figures and command line."""
