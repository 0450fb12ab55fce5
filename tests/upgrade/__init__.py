"""Files of every schema that ever stood on main, and histories that were recorded: today's code goes on from them."""
