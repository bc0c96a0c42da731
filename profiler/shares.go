package profiler

import "slices"

// smallestShare is the minimum CPU share of an instance, in millicores.
const smallestShare = 250

// Shares lists the CPU shares in millicores that a model's instances may have. They
// are a quarter and a half of a core, and for each thread count of the profile that
// many cores, and a quarter of a core less, because the provider itself needs CPU.
// Shares above limit, the deployment's CPU limit in millicores, are left out; 0 is no
// limit. If no share is left, the limit is the only share.
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
