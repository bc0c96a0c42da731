package peer

import (
	"cmp"
	"slices"
)

// Rank sorts members by their claim to a function's queue, the owner first (rendezvous hashing,
// Thaler and Ravishankar 1998). When a member goes, only its functions move, evenly to the
// others. When a member comes, it takes its share and nothing else moves. Members with the same
// ID count once. The result does not depend on the order of members.
func Rank(function string, members []Member) []Member {
	type ranked struct {
		Member
		weight uint64
	}
	all := make([]ranked, 0, len(members))
	for _, m := range members {
		all = append(all, ranked{m, weight(function, m.ID)})
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.ID, b.ID), cmp.Compare(a.URL, b.URL))
	})
	out := make([]Member, 0, len(all))
	for i, m := range all {
		if i == 0 || m.ID != all[i-1].ID {
			out = append(out, m.Member)
		}
	}
	return out
}

// Owns reports whether g's replica dispatches a function's requests: it is the owner, or all
// that come before it are out of reach.
func Owns(g *Group, function string) bool {
	self := g.options.Membership.Self()
	for _, m := range Rank(function, g.options.Membership.Members()) {
		if m.ID == self {
			return true
		}
		if !g.isDown(m) {
			return false
		}
	}
	return true
}

// weight is FNV-1a over both names with a separator. The finisher of SplitMix64 then mixes it, so
// that similar names get different weights.
func weight(function, member string) uint64 {
	h := uint64(14695981039346656037)
	add := func(s string) {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	add(function)
	add(member)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
