package testbed

// Latency is how long a batch of a model took on so many millicores and so many
// % of the GPU's SMs. Between configs that were measured it is on the line, first
// between batches, then between CPU shares, then between GPU shares; it is as
// noisy as what was measured, and may fall with the batch where that did. It is
// false outside of what was measured, and between no GPU and the smallest share
// of one, which are two ways to execute.
func (t *ReferenceTestbed) Latency(model string, batch, millicores, gpu int) (TestbedTime, bool) {
	shares := t.models[model]
	at := func(gpu int) (TestbedTime, bool) {
		cpu := func(millicores int) (TestbedTime, bool) { return byBatch(shares[testbedShare{millicores, gpu}], batch) }
		return betweenMeasured(millicores, func(yield func(int) bool) {
			for s := range shares {
				if s.gpu == gpu && !yield(s.millicores) {
					return
				}
			}
		}, cpu)
	}
	if gpu == 0 {
		return at(0)
	}
	return betweenMeasured(gpu, func(yield func(int) bool) {
		for s := range shares {
			if s.gpu > 0 && !yield(s.gpu) {
				return
			}
		}
	}, at)
}

func byBatch(row []timed, batch int) (TestbedTime, bool) {
	return betweenMeasured(batch, func(yield func(int) bool) {
		for _, at := range row {
			if !yield(at.batch) {
				return
			}
		}
	}, func(batch int) (TestbedTime, bool) {
		for _, at := range row {
			if at.batch == batch {
				return TestbedTime{Milliseconds: at.ms}, true
			}
		}
		return TestbedTime{}, false
	})
}

// betweenMeasured takes the time at x itself, or that on the line through the nearest
// points on either side that have one.
func betweenMeasured(x int, points func(yield func(int) bool), at func(int) (TestbedTime, bool)) (TestbedTime, bool) {
	if t, ok := at(x); ok {
		return t, true
	}
	var below, above int
	var low, high TestbedTime
	for p := range points {
		if p == x || p < x && p <= below || p > x && above > 0 && p >= above {
			continue
		}
		t, ok := at(p)
		if !ok {
			continue
		}
		if p < x {
			below, low = p, t
		} else {
			above, high = p, t
		}
	}
	if below == 0 || above == 0 {
		return TestbedTime{}, false
	}
	part := float64(x-below) / float64(above-below)
	return TestbedTime{low.Milliseconds + part*(high.Milliseconds-low.Milliseconds), true}, true
}
