"""The local API, a file a resource."""
