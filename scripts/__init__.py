"""Programs for developers: studies, benchmarks, generated pages."""
