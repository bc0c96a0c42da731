package control

import (
	"math"
	"time"
)

// part estimates the part of a function's requests that belong to one class.
//
// It keeps three means: over ten seconds, and over the last 32 and 8 requests if these are
// fewer. A mean of a part p over n requests is off by √(p(1−p)/2n) by chance: that of 8
// requests of which half belong is off by 0.13. So the longest mean counts until a shorter one
// differs by three times that; the longer ones then begin again from the shorter. If all
// requests begin to ask for something new, this shows after four of them.
type part struct {
	means [len(partWindows)]float64
	// ages has the number of requests that each mean covers.
	ages [len(partWindows)]float64
}

// partWindows has the numbers of requests after which a mean keeps 1/e of the old part, and
// partWindow the time.
var partWindows = [...]float64{math.Inf(1), 32, 8}

const partWindow = 10 * time.Second

// read counts requests of which some belong to the class. passed is the time since the requests
// before them.
func (p *part) read(belong, all float64, passed time.Duration) {
	for i, window := range partWindows {
		p.ages[i] += all
		kept := math.Exp(-passed.Seconds()/partWindow.Seconds() - all/window)
		p.means[i] += max(1-kept, all/p.ages[i]) * (belong/all - p.means[i])
	}
}

// settle returns the longest mean, after the shortest that contradicts it has replaced it.
func (p *part) settle() float64 {
	longest := &p.means[0]
	for i := len(p.means) - 1; i > 0; i-- {
		mean := p.means[i]
		chance := math.Sqrt(max(mean*(1-mean), *longest*(1-*longest)) / (2 * partWindows[i]))
		if math.Abs(mean-*longest) <= 3*chance {
			continue
		}
		for k := range i {
			p.means[k], p.ages[k] = mean, partWindows[i]
		}
	}
	return *longest
}
