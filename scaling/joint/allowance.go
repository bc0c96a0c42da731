package joint

import "math"

// allowance is what one exchange may still stop. Until the new instances are ready, only the
// others serve. A function that is short must not cost other functions their load meanwhile.
type allowance struct {
	// count is the number of instances, and rates has the rate of each function.
	count float64
	rates []float64
	// stopped has how many instances of each function the exchange stops so far.
	stopped []int
}

// allowance lets each function lose Part of what it serves, or its unserved part if that is more.
// For instance, a function that gets 0.02 of its load may lose 0.98 of its instances, and one that
// gets all of it a tenth. It may also lose all beyond its need. Instances that are starting
// serve nothing yet, so early exchanges have no bound.
func (x *swap) allowance() *allowance {
	a := &allowance{rates: make([]float64, len(x.functions)), stopped: make([]int, len(x.functions))}
	if x.early {
		a.count = math.Inf(1)
	}
	for k := range x.functions {
		part := max(Part, 1-x.has[k]/x.needs[k])
		a.count += part * float64(x.counts[k])
		if a.rates[k] = x.has[k] - (1-part)*min(x.has[k], x.needs[k]); x.early {
			a.rates[k] = math.Inf(1)
		}
	}
	return a
}

// mayStop reports whether these instances may stop too. Of each function at least one may.
func (x *swap) mayStop(a *allowance, stops []ExchangeMember) bool {
	if float64(len(stops)) > a.count {
		return false
	}
	lost, number := map[int]float64{}, map[int]int{}
	for i := range stops {
		k := stops[i].Function
		lost[k] += x.serves(&stops[i])
		if number[k]++; lost[k] > a.rates[k] && a.stopped[k]+number[k] > 1 {
			return false
		}
	}
	return true
}

// renews reports whether these are all instances of one function, whose room no other function gets.
func renews(functions []ExchangeFunction, stops []ExchangeMember, gets func(k int) bool) bool {
	if len(stops) == 0 {
		return false
	}
	k := stops[0].Function
	for i := range stops {
		if stops[i].Function != k {
			return false
		}
	}
	for other := range functions {
		if other != k && gets(other) {
			return false
		}
	}
	return len(stops) == len(functions[k].Instances)
}

// take takes what these instances serve from the allowance.
func (x *swap) take(a *allowance, stops []ExchangeMember) {
	a.count -= float64(len(stops))
	for i := range stops {
		k := stops[i].Function
		a.rates[k] -= x.serves(&stops[i])
		a.stopped[k]++
	}
}
