"""How fast we are beside the bare limit and the peers: all sides up at once, loaded in turn, held against targets."""
