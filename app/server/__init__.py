"""uvicorn as we need it. Each line here answers something it really does (deploy/decisions/0001)."""
