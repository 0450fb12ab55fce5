"""What must hold in a random world. Each room holds one matter; `judging.py` beside this folder names all rules.

Truth is what the providers' accounts and the logs of networks and people say; the daemon's file is what is judged. What
is said of the file alone, or of whoever is called back, is said for told stories too: `tests/simulation/rules/`.
"""
