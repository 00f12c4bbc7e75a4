"""What a rank does when something fails: here, in a peer, or in between."""
