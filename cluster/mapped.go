package cluster

import (
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

// Own returns the memory in bytes that r takes beside what is mapped.
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

// Beside returns what need takes of the node beside what it maps, and what is free for that. The
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
	return slices.IndexFunc(n.Mapped, func(f MappedFile) bool { return f.Mapping == m })
}

// mapIn counts an instance that maps what held says, and returns what it takes of the node. Copies of
// a node share the list, so mapIn and the others here change a copy of that.
func (n *Node) mapIn(held Resources) Resources {
	if !held.shares() {
		return held
	}
	n.Mapped = slices.Clone(n.Mapped)
	if i := n.mapped(held.Mapped); i >= 0 {
		n.Mapped[i].Instances++
		held.Memory = held.Own()
		return held
	}
	n.insert(MappedFile{Mapping: held.Mapped, Instances: 1})
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

// insert adds a file in the order of names and sizes, so that equal nodes are equal.
func (n *Node) insert(f MappedFile) {
	i, _ := slices.BinarySearchFunc(n.Mapped, f, func(a, b MappedFile) int {
		if by := strings.Compare(a.File, b.File); by != 0 || a.Bytes == b.Bytes {
			return by
		}
		if a.Bytes < b.Bytes {
			return -1
		}
		return 1
	})
	n.Mapped = slices.Insert(n.Mapped, i, f)
}

// yieldMapped counts an instance of the node as one of the others.
func (n *Node) yieldMapped(m Mapping) {
	if m.Bytes <= 0 {
		return
	}
	n.Mapped = slices.Clone(n.Mapped)
	i := n.mapped(m)
	if i < 0 {
		n.insert(MappedFile{Mapping: m})
		i = n.mapped(m)
	}
	f := &n.Mapped[i]
	f.Others++
	f.Instances = max(f.Instances, f.Others)
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

// Hold adds what an instance holds of a node.
func (s *Sum) Hold(node string, held Resources) {
	if at := (place{node, held.Mapped}); held.shares() {
		if s.mapped[at] {
			held.Memory = held.Own()
		} else if s.mapped == nil {
			s.mapped = map[place]bool{}
		}
		s.mapped[at] = true
	}
	s.Resources = s.Add(held)
}
