"""Commands that reprint every measured claim: `python -m benchmarks` lists them, with a name it runs one."""
