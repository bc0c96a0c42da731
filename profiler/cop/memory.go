package cop

// ColdShare is the part of a model's weights that its next run finds in memory
// and not in the last-level cache, of cached bytes, when a run touches working
// bytes. A run reads every weight once, in the same order, so that a weight is
// pushed out if more than the cache holds is touched until its turn comes again.
// Caches do not replace the oldest line but one that is picked by chance, which
// makes a slope of that edge:
//
//	working ≤ cached/2: 0;  working ≥ 2·cached: 1;  between on a line in working.
func ColdShare(working, cached int64) float64 {
	if cached <= 0 {
		return 0
	}
	return fraction((float64(working)/float64(cached) - 0.5) / 1.5)
}
