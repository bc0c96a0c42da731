package scaling

import (
	"testing"
	"time"
)

// The cheapest way that is there in time is taken. The node has 8 cores and 16 GiB, so a GiB costs half
// a core and 64 MiB 0.031 cores. The objective is 100 ms, a batch takes 40 ms, and 10 requests per second
// are missing unless a case says otherwise. Each comment has the cost of a request per second in millicores.
func TestCheapest(t *testing.T) {
	const mib = 1 << 20
	of := func(k kind, gain, cpu float64, memory int64, ready time.Duration) way {
		return way{kind: k, gain: gain, cpu: cpu, memory: memory * mib, ready: ready, exec: 40 * ms, price: 0.5}
	}
	for _, c := range []struct {
		name  string
		ways  []way
		short float64
		want  kind
	}{
		{"a quota costs cores only", []way{
			of(twin, 10, 400, 31, 16*ms), // (400 + 15)/10 = 41.5
			of(quota, 10, 400, 0, 0),     // 40
			of(shadowHere, 9, 400, 20, 11*ms),
		}, 10, quota},
		{"of two that cost the same, the quota", []way{of(unpark, 10, 400, 0, 0), of(quota, 10, 400, 0, 0)}, 10, quota},
		{"a parked instance has its memory already", []way{
			of(twin, 10, 400, 31, 16*ms), // 41.5
			of(unpark, 10, 400, 0, 0),    // 40
		}, 10, unpark},
		{"a small quota gains too little for its cores", []way{
			of(quota, 2, 200, 0, 0),      // 100
			of(twin, 10, 400, 31, 16*ms), // 41.5
		}, 10, twin},
		{"shared weights: a twin gains more for nearly the same", []way{
			of(twin, 10, 500, 31, 16*ms),      // (500 + 15)/10 = 51.5
			of(shadowHere, 9, 500, 20, 11*ms), // (500 + 10)/9 = 56.7
		}, 10, twin},
		{"own weights: a shadow of a part saves more than it loses", []way{
			of(twin, 10, 500, 578, 60*ms),     // (500 + 282)/10 = 78.2
			of(shadowHere, 9, 500, 84, 20*ms), // (500 + 41)/9 = 60.1
		}, 10, shadowHere},
		{"what exceeds the shortage counts for nothing", []way{
			of(whole, 40, 1000, 31, 16*ms),  // (1000 + 15)/4 = 254
			of(shadowHere, 5, 300, 20, 9e6), // (300 + 10)/4 = 77
		}, 4, shadowHere},
		{"the body's node has no room, or is dearer", []way{
			of(shadowElsewhere, 9, 500, 84, 20*ms), // 60.1
			of(whole, 10, 500, 578, 60*ms),         // 78.2
		}, 10, shadowElsewhere},
		{"a cheaper one that comes too late: 61 + 40 > 100 ms", []way{
			of(twin, 10, 500, 31, 61*ms),       // 51.5
			of(shadowHere, 9, 500, 200, 60*ms), // (500 + 98)/9 = 66.4
		}, 10, shadowHere},
		{"none is in time: the first", []way{
			of(twin, 10, 500, 31, 900*ms), of(shadowElsewhere, 9, 500, 200, 400*ms), of(whole, 10, 500, 578, 800*ms),
		}, 10, shadowElsewhere},
		{"what gains nothing is no way", []way{of(quota, 0, 0, 0, 0), of(whole, 10, 500, 578, 800*ms)}, 10, whole},
	} {
		i := cheapest(c.ways, c.short, 100*ms)
		if i < 0 || c.ways[i].kind != c.want {
			t.Errorf("%s: way %d is chosen", c.name, i)
		}
	}
	if i := cheapest([]way{of(quota, 0, 100, 0, 0)}, 10, 100*ms); i != -1 {
		t.Errorf("without a gain, way %d is chosen", i)
	}
	// Without an objective everything is in time.
	late := []way{of(shadowHere, 9, 500, 200, 400*ms), of(twin, 10, 500, 31, time.Hour)}
	if i := cheapest(late, 10, 0); i != 1 {
		t.Errorf("without an objective, way %d is chosen", i)
	}
}
