"""The step protocol: changes, tasks, job, restore, sinks, commit, observation."""
