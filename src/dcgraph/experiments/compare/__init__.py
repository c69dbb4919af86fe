"""Estimators side by side: what each makes of the same chains and tasks."""
