"""The API of Hermes, passed through: requests of others go on with the relay's key, streamed both ways."""
