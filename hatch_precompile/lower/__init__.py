"""From what dynamo built in this process to data another process can use."""
