package cluster

import (
	"cmp"
	"slices"
	"strings"
)

// Instances of a node that serve the same prepared model map the same file of weights. The kernel
// holds such a file once, so a node counts it with the first instance that maps it, and frees it
// with the last. The rest (engine, activations, bodies) counts for each instance.
//
// For example instances of ResNet-50 take 256 MiB, of which 98 MiB are mapped. The first takes
// 256 MiB of a node and every other one 158 MiB, running or parked.

// Mapping is a file that an instance maps.
type Mapping struct {
	// File tells the files of a node apart: instances that map the same one have the same name.
	File string `json:"file,omitempty"`
	// Bytes is its size.
	Bytes int64 `json:"bytes,omitempty"`
}

// MappedFile is a file that instances of a node map.
type MappedFile struct {
	Mapping
	// Instances is the number of these. Others of them are those that the caller does not see,
	// which count in [Node.Others].
	Instances int `json:"instances"`
	Others    int `json:"others,omitempty"`
}

// Own returns the memory in bytes that r takes in addition to what is mapped.
func (r Resources) Own() int64 { return r.Memory - r.Mapped.Bytes }

// shares reports whether a part of r counts once for a node.
func (r Resources) shares() bool { return r.Mapped.Bytes > 0 }

// Frees returns the memory in bytes that is free once an instance that holds that much has left the node: not
// what others still map.
func (n *Node) Frees(held Resources) int64 {
	if i := n.mapped(held.Mapped); held.shares() && i >= 0 && n.Mapped[i].Instances+n.Mapped[i].Others > 1 {
		return held.Own()
	}
	return held.Memory
}

// Beside returns what need takes of the node in addition to what it maps, and what is free for that. The
// node has so much less free if nothing maps the file there yet.
func (n *Node) Beside(need Resources) (own, free Resources) {
	own, free = need, n.Free
	if need.shares() {
		own.Memory, own.Mapped = need.Own(), Mapping{}
		if n.mapped(need.Mapped) < 0 {
			free.Memory -= need.Mapped.Bytes
		}
	}
	return own, free
}

// Maps reports whether an instance of the node maps the file.
func (n *Node) Maps(m Mapping) bool { return n.mapped(m) >= 0 }

// mapped returns the index of a file, -1 if no instance maps it. Files of different sizes are not
// the same, whatever their names.
func (n *Node) mapped(m Mapping) int {
	if i, found := slices.BinarySearchFunc(n.Mapped, m, compareMappings); found {
		return i
	}
	return -1
}

// compareMappings is the order of [Node.Mapped], by which equal nodes are equal.
func compareMappings(f MappedFile, m Mapping) int {
	return cmp.Or(strings.Compare(f.File, m.File), cmp.Compare(f.Bytes, m.Bytes))
}

// mapIn counts an instance that maps what held says, and returns what it takes of the node. Copies of
// a node share the list, so mapIn and the others here change a copy of that.
func (n *Node) mapIn(held Resources) Resources {
	if !held.shares() {
		return held
	}
	i, found := slices.BinarySearchFunc(n.Mapped, held.Mapped, compareMappings)
	if n.Mapped = slices.Clone(n.Mapped); found {
		n.Mapped[i].Instances++
		held.Memory = held.Own()
		return held
	}
	n.Mapped = slices.Insert(n.Mapped, i, MappedFile{Mapping: held.Mapped, Instances: 1})
	return held
}

// mapOut is the inverse of mapIn.
func (n *Node) mapOut(held Resources) Resources {
	i := n.mapped(held.Mapped)
	if !held.shares() || i < 0 {
		return held
	}
	n.Mapped = slices.Clone(n.Mapped)
	if n.Mapped[i].Instances--; n.Mapped[i].Instances > 0 {
		held.Memory = held.Own()
		return held
	}
	n.Mapped = slices.Delete(n.Mapped, i, i+1)
	return held
}

// othersOf returns the files as if only the others mapped them; nil for none.
func othersOf(all []MappedFile) (left []MappedFile) {
	for _, f := range all {
		if f.Others > 0 {
			f.Instances = f.Others
			left = append(left, f)
		}
	}
	return left
}

// Recount counts again what instances hold of a node, many at once: [Node.Take] copies the node's
// list of files for each of them, which for 2,000 loaded models is 87 MB a count; Recount allocates 0.6 MB.
// Make it with [Node.Recount], call Take for each instance and then Done or Yield.
type Recount struct {
	node *Node
	at   map[Mapping]int
}

// Recount begins with a node of which no instance that the caller sees holds anything.
func (n *Node) Recount() *Recount {
	n.Clear()
	c := &Recount{n, make(map[Mapping]int, len(n.Mapped))}
	for i, f := range n.Mapped {
		c.at[f.Mapping] = i
	}
	return c
}

// Take takes what an instance holds of the node, as [Node.Take] does.
func (c *Recount) Take(s *InstanceSpec, held Resources) {
	if held.shares() {
		i, found := c.at[held.Mapped]
		if !found {
			i = len(c.node.Mapped)
			c.at[held.Mapped] = i
			c.node.Mapped = append(c.node.Mapped, MappedFile{Mapping: held.Mapped})
		} else {
			held.Memory = held.Own()
		}
		c.node.Mapped[i].Instances++
	}
	c.node.take(s, held)
}

// Done ends the count. Use the node only after it.
func (c *Recount) Done() {
	slices.SortFunc(c.node.Mapped, func(a, b MappedFile) int { return compareMappings(a, b.Mapping) })
}

// Yield ends the count and adds what the instances hold to Others: the caller does not see them.
func (c *Recount) Yield() {
	c.Done()
	n := c.node
	n.Others = n.Total.Sub(n.Free)
	for i := range n.Devices {
		n.Devices[i].Others = n.Devices[i].Total.Sub(n.Devices[i].Free)
	}
	for i := range n.Mapped {
		n.Mapped[i].Others = n.Mapped[i].Instances
	}
}

// Sum adds what instances hold, with what those of a node map together once. Its zero value is
// empty.
type Sum struct {
	Resources
	mapped map[place]bool
}

// place is a file that is mapped on a node.
type place struct {
	node string
	Mapping
}

// Hold adds what an instance holds of a node, and returns what that takes in addition to what others map.
func (s *Sum) Hold(node string, held Resources) Resources {
	if at := (place{node, held.Mapped}); held.shares() {
		if s.mapped[at] {
			held.Memory = held.Own()
		} else if s.mapped == nil {
			s.mapped = map[place]bool{}
		}
		s.mapped[at] = true
	}
	s.Resources = s.Add(held)
	return held
}
