"""WKW (webknossos-wrap) as a source: a file is a shard, its blocks are chunks."""
