"""`anabranch bench keyed`: state per key in Python."""
