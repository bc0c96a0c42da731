package joint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// withClaims makes the GPUs of nodes claimed. used has, by UUID, the namespace that has a fifth of a GPU.
func withClaims(all []cluster.Node, used map[string]string) []cluster.Node {
	for i := range withGPUs(all) {
		n := &all[i]
		for k := range n.Devices {
			d := &n.Devices[k]
			d.Claimed = true
			if namespace := used[d.UUID]; namespace != "" {
				n.Hold(cluster.Resources{GPU: 20}, d.UUID)
				n.Devices[k].Namespace = namespace
			}
		}
	}
	return all
}

func in(namespace string, d Demand) Demand {
	d.Allowed.Tenant.Namespace = namespace
	return d
}

// checkClaims fails the test if a GPU that is claimed would serve two namespaces.
func checkClaims(t *testing.T, all []cluster.Node, demands []Demand, placed []placing.Placement) {
	t.Helper()
	has := map[string]string{}
	for i := range all {
		for _, d := range all[i].Devices {
			has[d.UUID] = d.Namespace
		}
	}
	for k, p := range placed {
		for _, x := range p.Placed {
			if x.Device == "" {
				continue
			}
			if of := has[x.Device]; of != "" && of != demands[k].Allowed.Tenant.Namespace {
				t.Fatalf("%s serves %s and %s", x.Device, of, demands[k].Allowed.Tenant.Namespace)
			}
			has[x.Device] = demands[k].Allowed.Tenant.Namespace
		}
	}
}

// What another namespace has of a GPU is no room. A plan then takes another GPU, or cores, also where these
// are worse.
func TestClaimsArePlanned(t *testing.T) {
	share, cores := choice(500, 40, 10), choice(4000, 0, 10)
	for _, c := range []struct {
		name          string
		used          map[string]string
		demands       []Demand
		shares, rooms []int // of each demand: instances with a share; 0 for no room
	}{
		{"its own", map[string]string{"n00-0": "one"}, []Demand{in("one", demand(10, share, cores))}, []int{1}, []int{1}},
		{"another GPU", map[string]string{"n00-0": "one"}, []Demand{in("two", demand(20, share, cores))}, []int{2}, []int{1}},
		{"another's", map[string]string{"n00-0": "one", "n00-1": "one"}, []Demand{in("two", demand(20, share, cores))}, []int{0}, []int{1}},
		{"another's, and no cores", map[string]string{"n00-0": "one", "n00-1": "one"}, []Demand{in("two", demand(20, share))}, []int{0}, []int{0}},
		{"a GPU each", nil, []Demand{in("one", demand(20, share)), in("two", demand(20, share))}, []int{2, 2}, []int{1, 1}},
		{"beside one that is short of all", map[string]string{"n00-0": "one", "n00-1": "two"}, []Demand{in("one", demand(1000, share)), in("two", demand(10, share))}, []int{2, 1}, []int{0, 1}},
		{"three for two", nil, []Demand{in("one", demand(20, share)), in("two", demand(20, share)), in("three", demand(20, share))}, nil, nil},
	} {
		all := withClaims(nodes(1, 16000, 200), c.used)
		got := New(Thrift{}, c.demands).Place(placing.New(all, options))
		checkClaims(t, all, c.demands, got)
		for k := range c.shares {
			shares := 0
			for _, x := range got[k].Placed {
				if x.Device != "" {
					shares++
				}
			}
			if shares != c.shares[k] || (got[k].Reason == placing.None) != (c.rooms[k] > 0) {
				t.Errorf("%s: %s", c.name, show(got))
			}
		}
	}
}

// Whatever has claims, no GPU serves two namespaces or gives more than it has.
func FuzzPlaceWithClaims(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 7))
		names := []string{"one", "two", "three"}[:1+r.IntN(3)]
		used := map[string]string{}
		count, gpus := 1+r.IntN(4), 1+r.IntN(4)
		for i := range count {
			for k := range gpus {
				if r.IntN(3) == 0 {
					used[fmt.Sprintf("n%02d-%d", i, k)] = names[r.IntN(len(names))]
				}
			}
		}
		all := withClaims(nodes(count, 1000*(1+r.IntN(16)), 100*gpus), used)
		var demands []Demand
		for range 1 + r.IntN(5) {
			d := in(names[r.IntN(len(names))], demand(r.ExpFloat64()*100))
			for range 1 + r.IntN(6) {
				c := choice(250*(1+r.IntN(8)), 10*r.IntN(11), 1+r.ExpFloat64()*30)
				d.Choices, d.Configs = append(d.Choices, c), append(d.Configs, c.Candidate)
			}
			demands = append(demands, d)
		}
		room := placing.New(all, options)
		placed := New(Thrift{Lean: r.IntN(2) == 0, Nodes: count}, demands).Place(room)
		checkClaims(t, all, demands, placed)
		for i := range room.Places {
			at := &room.Places[i]
			if !(cluster.Resources{}).Fits(at.Free) || slices.ContainsFunc(at.Devices, func(d cluster.DeviceRoom) bool { return d.Free.GPU < 0 }) {
				t.Fatalf("%+v", at.Node)
			}
		}
	})
}

// A function has shares only of the kinds of GPUs on which its times are known, also where a node has
// two kinds, and cores serve it where there is no such GPU.
func TestKindsArePlanned(t *testing.T) {
	share, cores := choice(500, 40, 10), choice(4000, 0, 10)
	known := func(kinds []string, d Demand) Demand {
		d.Allowed.Tenant.Kinds = cluster.Kinds(kinds)
		return d
	}
	for _, c := range []struct {
		name    string
		kinds   []string // of the node's GPUs
		demands []Demand
		on      []map[string]int // instances by GPU; "" is none
	}{
		{"one of two", []string{"T4", "A100"}, []Demand{known([]string{"A100"}, demand(20, share, cores))}, []map[string]int{{"n00-1": 2}}},
		{"any", []string{"T4", "A100"}, []Demand{known([]string{"A100", "T4"}, demand(40, share))}, []map[string]int{{"n00-0": 2, "n00-1": 2}}},
		{"none", []string{"T4", "T4"}, []Demand{known([]string{"A100"}, demand(20, share, cores))}, []map[string]int{{"": 2}}},
		{"no kind", []string{"T4", "T4"}, []Demand{known([]string{cluster.NoKind}, demand(20, share))}, []map[string]int{{}}},
		{"one each", []string{"T4", "A100"}, []Demand{known([]string{"A100"}, demand(20, share)), known([]string{"T4"}, demand(20, share))}, []map[string]int{{"n00-1": 2}, {"n00-0": 2}}},
	} {
		all := withGPUs(nodes(1, 16000, 200))
		for k, kind := range c.kinds {
			all[0].Devices[k].Kind = kind
		}
		got := New(Thrift{}, c.demands).Place(placing.New(all, options))
		for k := range c.demands {
			on := map[string]int{}
			for _, x := range got[k].Placed {
				on[x.Device]++
			}
			if !maps.Equal(on, c.on[k]) {
				t.Errorf("%s: the %d. is on %v, want %v", c.name, k, on, c.on[k])
			}
		}
	}
}
