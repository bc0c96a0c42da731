package cluster

import "iter"

// Over lists the nodes of an instance and what it takes of each, if it takes held in all. That
// is held of node, or, for a set over several nodes, an equal part for each member. A node with
// several members is listed once for each.
func Over(node string, nodes []string, held Resources) iter.Seq2[string, Resources] {
	return func(yield func(string, Resources) bool) {
		if len(nodes) == 0 {
			yield(node, held)
			return
		}
		part := Config{Parts: len(nodes), Resources: held}.Each()
		for _, n := range nodes {
			if !yield(n, part) {
				return
			}
		}
	}
}

// Shares lists the nodes of an instance and what it takes of each; see [Over].
func (s *InstanceSpec) Shares() iter.Seq2[string, Resources] {
	return Over(s.Node, s.Nodes, s.Holds())
}

// Streams returns the number of batches that an instance with the config executes at the same
// time.
func (c Config) Streams() int { return max(1, c.Concurrency) }
