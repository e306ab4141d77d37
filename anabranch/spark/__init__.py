"""Compiles a plan into one DataFrame job per step, and runs each step exactly once."""

import anabranch.spark.versions  # noqa: F401 - refuses a Spark that is not supported, first
