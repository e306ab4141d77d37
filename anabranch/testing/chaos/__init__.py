"""`anabranch chaos`: random topologies and faults, whole outputs compared."""
