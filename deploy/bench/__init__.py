"""What the relay costs, beside a bare server in the same run: `make bench`, or `python -m deploy.bench`."""
