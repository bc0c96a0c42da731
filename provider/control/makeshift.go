package control

import "slices"

// fallBack lets instances go on that are too slow by what was seen, as long as none of the
// function's is not. There may be no room for one that is faster, or never be: two
// functions on one node may each wait for what the other has. Without executions nobody
// would see that the trouble has passed, and no request would be answered. The lock is
// held.
func (c *Controller) fallBack(fn *function) {
	makesDo := !slices.ContainsFunc(fn.sorted(), func(in *instance) bool { return in.serves() && !in.useless })
	if makesDo == fn.fallsBack {
		return
	}
	fn.fallsBack = makesDo
	for _, in := range fn.sorted() {
		if in.serves() && in.useless && in.fallback != nil {
			in.up(c.rules.Queue(fn.Function))
		}
	}
}
