"""Message shapes that the API and its clients share."""
