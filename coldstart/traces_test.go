package coldstart

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// loads has the requests of one function over a week, as times since its start, for
// many kinds of load. No policy was made for any of them.
var loads = []struct {
	name string
	make func(r *rand.Rand) []time.Duration
}{
	{"timer-5min", func(r *rand.Rand) []time.Duration { return timer(r, 5*time.Minute, time.Second) }},
	{"timer-1h", func(r *rand.Rand) []time.Duration { return timer(r, time.Hour, 20*time.Second) }},
	{"timer-1h-loose", func(r *rand.Rand) []time.Duration { return timer(r, time.Hour, 5*time.Minute) }},
	{"timer-6h", func(r *rand.Rand) []time.Duration { return timer(r, 6*time.Hour, time.Minute) }},
	{"daily-thrice", func(r *rand.Rand) []time.Duration {
		return together(shift(timer(r, day, time.Minute), 2*time.Hour), shift(timer(r, day, time.Minute), 9*time.Hour), shift(timer(r, day, time.Minute), 17*time.Hour))
	}},
	{"two-timers", func(r *rand.Rand) []time.Duration {
		return together(timer(r, 15*time.Minute, 2*time.Second), shift(timer(r, 40*time.Minute, 2*time.Second), 7*time.Minute))
	}},
	{"timer-and-people", func(r *rand.Rand) []time.Duration {
		return together(timer(r, 30*time.Minute, 2*time.Second), poisson(r, func(time.Duration) float64 { return 1.0 / 7200 }))
	}},
	{"timer-with-burst", func(r *rand.Rand) []time.Duration {
		return follow(r, timer(r, 30*time.Minute, 5*time.Second), 20, 10*time.Second)
	}},
	{"poisson-10min", func(r *rand.Rand) []time.Duration {
		return poisson(r, func(time.Duration) float64 { return 1.0 / 600 })
	}},
	{"poisson-1h", func(r *rand.Rand) []time.Duration {
		return poisson(r, func(time.Duration) float64 { return 1.0 / 3600 })
	}},
	{"day-and-night", func(r *rand.Rand) []time.Duration {
		return poisson(r, func(at time.Duration) float64 {
			return 0.5 / 60 * math.Pow((1-math.Cos(2*math.Pi*at.Hours()/24))/2, 3)
		})
	}},
	{"office-hours", func(r *rand.Rand) []time.Duration {
		return poisson(r, func(at time.Duration) float64 {
			if h := math.Mod(at.Hours(), 24); at < 5*day && h > 8 && h < 17 {
				return 1.0 / 240
			}
			return 0
		})
	}},
	{"bursts", func(r *rand.Rand) []time.Duration {
		return renewal(r, func() float64 {
			if r.Float64() < 0.9 {
				return 20 * r.ExpFloat64()
			}
			return 3600 * r.ExpFloat64()
		})
	}},
	{"heavy-tail", func(r *rand.Rand) []time.Duration {
		return renewal(r, func() float64 { return 10 * math.Pow(r.Float64(), -1/0.8) })
	}},
	{"changing", func(r *rand.Rand) []time.Duration {
		return together(
			only(timer(r, 10*time.Minute, 5*time.Second), 0, 2*day),
			only(timer(r, 45*time.Minute, 20*time.Second), 2*day, 4*day),
			only(poisson(r, func(time.Duration) float64 { return 1.0 / 300 }), 4*day, 5*day),
			only(timer(r, 20*time.Minute, 5*time.Second), 5*day, 7*day))
	}},
	{"alternating", func(r *rand.Rand) []time.Duration {
		long := false
		return renewal(r, func() float64 {
			long = !long
			if long {
				return 3300 + 60*r.NormFloat64()
			}
			return 300 + 10*r.NormFloat64()
		})
	}},
	{"gamma-cv4", func(r *rand.Rand) []time.Duration {
		return renewal(r, func() float64 { return gamma(r, 1.0/16) * 16 * 300 })
	}},
	{"sessions", func(r *rand.Rand) []time.Duration {
		starts := poisson(r, func(at time.Duration) float64 {
			return 1.0 / 1800 * (1 - math.Cos(2*math.Pi*at.Hours()/24))
		})
		return follow(r, starts, 8, 45*time.Second)
	}},
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func timer(r *rand.Rand, every, sigma time.Duration) []time.Duration {
	var all []time.Duration
	for at := every / 2; at < week; at += every {
		all = append(all, max(0, at+time.Duration(r.NormFloat64()*float64(sigma))))
	}
	slices.Sort(all)
	return all
}

func poisson(r *rand.Rand, rate func(time.Duration) float64) []time.Duration {
	const most = 1.0 / 10
	var all []time.Duration
	for at := time.Duration(0); ; {
		at += seconds(r.ExpFloat64() / most)
		if at >= week {
			return all
		}
		if r.Float64()*most < rate(at) {
			all = append(all, at)
		}
	}
}

func renewal(r *rand.Rand, gap func() float64) []time.Duration {
	var all []time.Duration
	for at := time.Duration(0); at < week; at += max(0, min(week, seconds(gap()))) {
		all = append(all, at)
	}
	return all
}

func follow(r *rand.Rand, starts []time.Duration, mean int, apart time.Duration) []time.Duration {
	all := slices.Clone(starts)
	for _, at := range starts {
		for r.Float64() > 1/float64(mean) {
			at += time.Duration(r.ExpFloat64() * float64(apart))
			if at < week {
				all = append(all, at)
			}
		}
	}
	slices.Sort(all)
	return all
}

func together(loads ...[]time.Duration) []time.Duration {
	all := slices.Concat(loads...)
	slices.Sort(all)
	return all
}

func shift(load []time.Duration, by time.Duration) []time.Duration {
	for i := range load {
		load[i] = (load[i] + by) % week
	}
	slices.Sort(load)
	return load
}

func only(load []time.Duration, from, to time.Duration) []time.Duration {
	return slices.DeleteFunc(load, func(at time.Duration) bool { return at < from || at >= to })
}

// gamma draws from a gamma distribution with shape below 1 (Ahrens and Dieter).
func gamma(r *rand.Rand, shape float64) float64 {
	b := (math.E + shape) / math.E
	for {
		p := b * r.Float64()
		if p <= 1 {
			if x := math.Pow(p, 1/shape); r.Float64() <= math.Exp(-x) {
				return x
			}
		} else if x := -math.Log((b - p) / shape); r.Float64() <= math.Pow(x, shape-1) {
			return x
		}
	}
}
