package testbed

// Latency returns the time of a batch of a model on a CPU share in millicores and a GPU
// share in % of the SMs. Between measured configs it interpolates linearly: first between
// batches, then between CPU shares, then between GPU shares. The result is as noisy as the
// measurements, and may fall with the batch if they do. ok is false outside of the
// measurements, and between no GPU and the smallest share of one: these are two different
// ways to execute.
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

// betweenMeasured returns the time at x, or interpolates linearly between the nearest
// points on either side that have a time.
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
