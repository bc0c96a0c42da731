package profiler

import "slices"

// smallestShare is the least CPU that an instance is given, in millicores.
const smallestShare = 250

// Shares lists the CPU shares in millicores that a model's instances may have: a
// quarter and a half of a core, and all of 1, 2, 4, … cores, the numbers of threads of
// the profile, or all but a quarter of one, as the provider itself needs some of the
// machine; as far as a CPU limit of the deployment allows; 0 is none. A limit below all
// of them is the one share.
func (p *Profile) Shares(limit int) []int {
	shares := []int{smallestShare, 2 * smallestShare}
	for _, threads := range p.Threads() {
		shares = append(shares, 1000*threads-smallestShare, 1000*threads)
	}
	if limit == 0 {
		return shares
	}
	shares = slices.DeleteFunc(shares, func(s int) bool { return s > limit })
	if len(shares) == 0 {
		shares = []int{limit}
	}
	return shares
}
