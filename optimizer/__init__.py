"""Decides what to try on a host, tries it, and proves what is faster.

Start reading at `run_trial.py` (one trial, top to bottom), then `phases.py` (a study's phases) and
`worker.py` (who runs them). Sub-packages: `search` (what to try), `engines` (what a server's flags mean),
`remote` (how a server is owned on a host), `bench` (how fast it is and whether that is a win).
"""
