"""What comes in over HTTP: webhooks and the local API. Handlers translate; they decide nothing and hold no state."""
