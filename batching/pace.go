package batching

import "time"

const (
	// paceStep is how far one batch moves a Pace: after a change of a fifth, twenty batches show it.
	paceStep = 0.01
	// quick is the part of the batches that take less than [Pace.Quick].
	quick = 0.15
	// maxEarly bounds a Pace.
	maxEarly = 0.5
	// atOnce is the part of Exec before which a batch failed, or had no member left: it says nothing.
	atOnce = 1.0 / 8
)

// Pace estimates the median of how long batches take, as a part of [Instance.Exec]. Few batches take
// longer than Exec, so a batch that is planned with it is in time. Most take less: a request that can
// be in time only if its batch does is worth a try if nothing else is to do. The zero value has seen
// no batch, and its median is Exec.
type Pace struct {
	// early is how far the median is below Exec, as a part of it; earlier is how far the time of the quick batches is.
	early, earlier float64
}

// Add counts a batch that took real and has the time exec in Exec. As many batches take longer than the
// median as take less, so each moves the estimate by the same step. Of the quick ones there are few, so each of them
// moves the other estimate by more than one of the rest.
func (p *Pace) Add(real, exec time.Duration) {
	if float64(real) < atOnce*float64(exec) {
		return
	}
	switch median := p.Of(exec); {
	case real > median:
		p.early = max(0, p.early-paceStep)
	case real < median:
		p.early = min(maxEarly, p.early+paceStep)
	}
	switch least := p.Quick(exec); {
	case real > least:
		p.earlier -= quick * paceStep
	case real < least:
		p.earlier += (1 - quick) * paceStep
	}
	p.earlier = max(p.early, min(maxEarly, p.earlier))
}

// Of returns the median time of a batch that has the time exec in Exec.
func (p *Pace) Of(exec time.Duration) time.Duration {
	return exec - time.Duration(p.early*float64(exec))
}

// Quick returns the time of a batch that is quicker than most and has the time exec in Exec. A request that is in time
// only if its batch takes less is not worth a try.
func (p *Pace) Quick(exec time.Duration) time.Duration {
	return exec - time.Duration(p.earlier*float64(exec))
}

// exec is the time in Exec of a batch with that median.
func (p *Pace) exec(median time.Duration) time.Duration {
	return time.Duration(float64(median) / (1 - p.early))
}
