"""What a host stores: shards in LMDB with locks, versions and fences."""
