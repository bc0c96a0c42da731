package batching

// NewDeferred returns the policy of Symphony (Deferred Batch Scheduling, arXiv 2308.07470): [Shared] with one
// other rule for when a batch starts. With t(b) the time of a batch of b and d its first deadline, the batch may
// start in the window from d − t(b+1), Symphony's frontrun, to d − t(b), its latest start. Before the window one
// more request could still join and all would be in time. So nothing starts before it, even if instances are idle,
// unless the batch is full. The instance with the lowest number goes first, so the others stay idle and can be
// released.
//
// Symphony compares models that share accelerators by their latest starts. Here each function has its own
// instances, so that part has no use.
func NewDeferred(o Options) *Shared {
	s := NewShared(o)
	s.deferred = true
	return s
}

// held reports whether the kind's next batch is held back. A deferred batch waits for the kind that was chosen
// for it. Another kind's window may have begun because that kind is slower, which is no reason to start there:
// so all kinds wait whose requests a held kind serves, too.
func (k *kind) held(s *Shared) bool {
	lanes := k.lanes & s.queued
	for _, held := range s.held {
		if held == k || s.deferred && lanes&^held.lanes == 0 {
			return true
		}
	}
	return false
}
