"""SQL and nothing above it: tables, migrations, and one module of plain functions per noun."""
