"""What runs inside a guest: checks of xskit on the NICs that it has, one boot for many."""
