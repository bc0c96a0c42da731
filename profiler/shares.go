package profiler

import "slices"

// Share is the part of a machine on which an instance's engine computes: the c and g of
// INFless' ⟨b, c, g⟩.
type Share struct {
	// CPU in millicores.
	CPU int
	// GPU in % of one GPU's SMs, 0 without a GPU.
	GPU int
}

// smallShares are the CPU shares of less than a core that every model's instances may have, in millicores. The smallest
// one gives 1.25 ms of each period of 10 ms; the kernel allows 1 ms at least.
var smallShares = []int{125, 250, 500}

// beside is what the provider itself needs beside whole cores, in millicores.
const beside = 250

// Shares lists the CPU shares in millicores that the instances of a model may have. They
// are an eighth, a quarter and half of a core, and for each thread count of the profile that
// many cores, and a quarter of a core less, because the provider itself needs CPU.
// Shares above limit, the deployment's CPU limit in millicores, are left out; 0 is no
// limit. If no share is left, the limit is the only share.
//
// The shares of a model that several instances run together are those of all that compute at the
// same time, and limit bounds each. For example two such instances with a thread each have 250m, 500m, 1000m,
// 1500m or 2000m together.
func (p *Profile) Shares(limit int) []int {
	n := p.Computing()
	each := slices.Clone(smallShares)
	for _, threads := range p.Threads() {
		each = append(each, 1000*threads/n-beside, 1000*threads/n)
	}
	if limit > 0 {
		each = slices.DeleteFunc(each, func(s int) bool { return s > limit })
		if len(each) == 0 {
			each = []int{limit}
		}
	}
	for i := range each {
		each[i] *= n
	}
	return each
}
