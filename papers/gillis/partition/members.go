package partition

import (
	"cmp"
	"fmt"
	"slices"
)

// Member is what one of the instances that run a plan together holds: the weights of all its
// parts, and the most activations that one of them needs, in bytes.
type Member struct {
	Weights, Activations int64
}

// holds returns the bytes that the member has at its peak.
func (m *Member) holds() int64 { return m.Weights + m.Activations }

// with returns the member with one part more.
func (m Member) with(p *Part) Member {
	return Member{m.Weights + p.Weights, max(m.Activations, p.Activations)}
}

// MembersError says that a plan's parts do not fit into a number of members.
type MembersError struct {
	// Most is the maximum number of members, Needed the number with which the parts fit.
	Most, Needed int
	// Memory is what a member may hold in bytes.
	Memory int64
}

// Error names the number of members that would do.
func (e *MembersError) Error() string {
	return fmt.Sprintf("the parts need %d instances with %d MiB for weights and tensors each, and at most %d are allowed", e.Needed, e.Memory>>20, e.Most)
}

// Assign gives every part of the plan to a member, in as few members as its greedy order
// needs: in Gillis each part is a function of its own, of which most would idle while another
// round runs. on has the members by round and part. Member 0 is the master, and computes the
// parts that the plan gives it. The parts of a round are on different members, and no member
// holds more than memory bytes. In each round the largest part goes first, to the member
// with the least weights so far that has room.
func (p *Plan) Assign(memory int64, most int) (on [][]int, members []Member, err error) {
	members = []Member{{Activations: p.Activations}}
	for i := range p.Rounds {
		r := &p.Rounds[i]
		order := make([]int, len(r.Option.Parts))
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.Option.Parts[b].Weights, r.Option.Parts[a].Weights) })
		at := make([]int, len(r.Option.Parts))
		taken := map[int]bool{0: true}
		for _, k := range order {
			part := &r.Option.Parts[k]
			if k == r.Master {
				at[k], members[0] = 0, members[0].with(part)
				continue
			}
			best := -1
			for m := 1; m < len(members); m++ {
				if with := members[m].with(part); !taken[m] && with.holds() <= memory && (best < 0 || members[m].Weights < members[best].Weights) {
					best = m
				}
			}
			if best < 0 {
				best, members = len(members), append(members, Member{})
			}
			at[k], members[best], taken[best] = best, members[best].with(part), true
		}
		on = append(on, at)
	}
	if len(members) > most {
		return nil, nil, &MembersError{Most: most, Needed: len(members), Memory: memory}
	}
	return on, members, nil
}
