"""One wheel for several versions: the plan, its cells built here or elsewhere, and what is made of them."""
