"""Would it have been worth it? A site's own history, played under both orders."""
