package profiler

import (
	"cmp"
	"math"
	"slices"
)

const (
	// shareStep is the difference in % between two shares of a GPU in
	// [Profile.DeviceCandidates], as in INFless §3.3.
	shareStep = 10
	// cpuStep is the difference in millicores between two CPU quotas beside a share, and
	// wholeCore the largest quota: one thread feeds the GPU.
	cpuStep, wholeCore = 250, 1000
	// memoryStep is the unit of memory limits on a GPU (MPS), in bytes.
	memoryStep = 1 << 20
)

// DeviceShares lists the profile's shares of a GPU, ascending; none if it has none.
func (p *Profile) DeviceShares() []int {
	var gs []int
	for _, m := range p.Measurements {
		if m.GPU > 0 {
			gs = append(gs, m.GPU)
		}
	}
	slices.Sort(gs)
	return slices.Compact(gs)
}

// onDevice is the conservative wall time and CPU time of a batch, in µs with the margin, on
// a share of gpu % of a GPU. It never rises with the share: a smaller share takes at least as
// long as each larger one. Between two measured shares it is on the curve
//
//	t = a + k/g
//
// through the neighbours: a is what no multiprocessor makes faster, and k is divided among
// them. For example 8 ms on 20 % and 5 ms on 40 % give k = (8−5)/(1/20−1/40) = 120 and
// a = 2, so 30 % take 2 + 120/30 = 6 ms. A share above the largest measured one counts as
// that one. onDevice is false below the smallest share at which the batch was measured.
func (p *Profile) onDevice(batch, gpu int) (wall, work float64, ok bool) {
	above := 0 // The share next above that was measured, 0 before the first.
	var aboveWall, aboveWork float64
	for _, g := range slices.Backward(p.DeviceShares()) {
		w, c, covered := between(p.sorted(1, g), batch)
		if !covered {
			continue
		}
		w, c = max(w, aboveWall), max(c, aboveWork)
		switch {
		case g == gpu || above == 0 && g < gpu:
			return w, c, true
		case g < gpu:
			part := (1/float64(gpu) - 1/float64(above)) / (1/float64(g) - 1/float64(above))
			return aboveWall + part*(w-aboveWall), aboveWork + part*(c-aboveWork), true
		}
		above, aboveWall, aboveWork = g, w, c
	}
	return 0, 0, false
}

// quotaFor is the smallest CPU quota in millicores, in steps of 250, that an instance for
// batches up to batch never uses up on gpu % of a GPU, and at most a whole core. A period of
// the quota touches at most ⌈period/wall⌉ + 1 batches that run one after another. For example
// batches of 4 ms that need 0.3 ms of CPU time: 4 of them and 1.2 ms in a period of 10 ms,
// less than the 2.5 ms of 250m. Small batches may need more than large ones.
func (p *Profile) quotaFor(batch, gpu int) int {
	period, enough := float64(QuotaPeriod.Microseconds()), cpuStep
	for _, b := range upTo(batch) {
		wall, work, _, ok := p.unthrottled(b, Share{CPU: wholeCore, GPU: gpu})
		if !ok {
			return wholeCore
		}
		for enough < wholeCore && work*(math.Ceil(period/wall)+1) > period*float64(enough)/1000 {
			enough += cpuStep
		}
	}
	return enough
}

// DeviceMemory is the memory in bytes that an engine for batches up to batch holds of a GPU:
// the maximum of what was measured up to this batch, rounded up to MiB. A batch between two
// measured ones counts as the larger one.
func (p *Profile) DeviceMemory(batch int) int64 {
	var sorted []Measurement
	for _, m := range p.Measurements {
		if m.GPU > 0 && m.DeviceMemory > 0 {
			sorted = append(sorted, m)
		}
	}
	slices.SortFunc(sorted, func(a, b Measurement) int { return cmp.Compare(a.Batch, b.Batch) })
	most, reached := int64(0), 0
	for _, m := range sorted {
		if reached >= batch && m.Batch > reached {
			break
		}
		most, reached = max(most, m.DeviceMemory), m.Batch
	}
	return (most + memoryStep - 1) / memoryStep * memoryStep
}

// Bounds limit the configs of [Profile.DeviceCandidates].
type Bounds struct {
	// LeastCPU and MostCPU bound the CPU quota in millicores. A MostCPU of 0 is no bound.
	LeastCPU, MostCPU int
	// MaxBatch is the largest batch.
	MaxBatch int
	// Memory is each config's host memory in bytes.
	Memory int64
}

// DeviceCandidates lists the configs on a share of a GPU: every batch as in
// [Profile.Candidates] on 10, 20, …, 100 % of a GPU, each with the smallest CPU quota that
// pauses no batch. A larger quota would make none faster. It leaves out shares below the
// smallest measured one. A profile without a GPU has none.
func (p *Profile) DeviceCandidates(b Bounds) []Candidate {
	var cs []Candidate
	if len(p.DeviceShares()) == 0 {
		return nil
	}
	for g := shareStep; g <= 100; g += shareStep {
		for _, batch := range p.batches(b.MaxBatch) {
			share := Share{CPU: max(p.quotaFor(batch, g), b.LeastCPU), GPU: g}
			if b.MostCPU > 0 {
				share.CPU = min(share.CPU, b.MostCPU)
			}
			if t, ok := p.ExecTime(batch, share); ok {
				cs = append(cs, Candidate{Batch: batch, Share: share, Memory: b.Memory, GPUMemory: p.DeviceMemory(batch), Exec: t})
			}
		}
	}
	return cs
}

// HoldDevice says that an instance takes all memory of a GPU, in whole MiB as configs have it: rounded up
// it would fit on no GPU.
func (p *Profile) HoldDevice(memory int64) {
	p.WholeDevice = true
	for k := range p.Measurements {
		p.Measurements[k].DeviceMemory = memory / memoryStep * memoryStep
	}
}

// With returns the profile together with device's, a profile on a GPU: a model that may run
// on either. p may be nil. A share and batch that p has already from another GPU gets the
// longer time and the larger memory, since an instance may come to either. Instances that take all
// memory of their GPU count with that of the smaller one, because they fit on either.
func (p *Profile) With(device *Profile) *Profile {
	var out Profile
	if p == nil {
		out = *device
		out.Measurements, out.Devices = nil, nil
	} else {
		out = *p
		out.Measurements = slices.Clone(p.Measurements)
	}
	out.Devices = append(slices.Clip(out.Devices), device.Machine)
	out.DeviceHost = max(out.DeviceHost, device.DeviceHost, device.Memory)
	for _, m := range device.Measurements {
		i := slices.IndexFunc(out.Measurements, func(o Measurement) bool { return o.GPU == m.GPU && o.Threads == m.Threads && o.Batch == m.Batch })
		switch {
		case m.GPU == 0:
		case i < 0:
			out.Measurements = append(out.Measurements, m)
		default:
			o := &out.Measurements[i]
			memory := max(o.DeviceMemory, m.DeviceMemory)
			if device.WholeDevice {
				memory = min(o.DeviceMemory, m.DeviceMemory)
			}
			if m.Median > o.Median {
				*o = m
			}
			o.DeviceMemory = memory
		}
	}
	return &out
}

// HeldOut tells how well times on shares follow from others: it leaves out each measured share
// between two others in turn, at each batch, and compares its median with that between its
// neighbours. It returns the mean of the relative errors and their number, 0 without such a
// share.
func (p *Profile) HeldOut() (mean float64, n int) {
	shares := p.DeviceShares()
	median := func(gpu, batch int) (float64, bool) {
		for _, m := range p.Measurements {
			if m.GPU == gpu && m.Batch == batch {
				return m.Median, true
			}
		}
		return 0, false
	}
	for i := 1; i+1 < len(shares); i++ {
		small, g, large := shares[i-1], shares[i], shares[i+1]
		for _, m := range p.sorted(1, g) {
			a, has := median(small, m.Batch)
			b, also := median(large, m.Batch)
			if has && also {
				part := (1/float64(g) - 1/float64(large)) / (1/float64(small) - 1/float64(large))
				mean, n = mean+math.Abs((b+part*(max(a, b)-b))/m.Median-1), n+1
			}
		}
	}
	return mean / float64(max(1, n)), n
}
