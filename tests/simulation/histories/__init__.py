"""Random worlds: many operations at providers of each creed, from one seed; the run that tells thousands of them."""
