package local

import (
	"maps"
	"slices"
)

// coreAllocator gives cores to instances. It is not safe for concurrent use.
type coreAllocator struct {
	all []int
	// exclusive[id] holds the cores that only id may use.
	exclusive map[string][]int
	// shared[id] is the demand of a member of the shared pool in millicores.
	shared map[string]int
}

// newCoreAllocator returns an allocator of these cores (CPU numbers).
func newCoreAllocator(all []int) *coreAllocator {
	return &coreAllocator{
		all:       slices.Compact(slices.Sorted(slices.Values(all))),
		exclusive: map[string][]int{},
		shared:    map[string]int{},
	}
}

// Take gives id exclusive cores if it asks for whole ones (a multiple of 1000
// millicores) and enough remain for the members of the shared pool. Otherwise
// it returns nil and id joins the shared pool. Take chooses the lowest free
// numbers, because neighbouring cores share caches. If id has cores already, it
// gives them back first.
func (a *coreAllocator) Take(id string, millicores int) []int {
	a.Release(id)
	count := millicores / 1000
	free := a.free()
	if millicores <= 0 || millicores%1000 != 0 || len(free)-count < a.demand() {
		a.Share(id, millicores)
		return nil
	}
	a.exclusive[id] = free[:count:count]
	return slices.Clone(a.exclusive[id])
}

// Share makes id a member of the shared pool.
func (a *coreAllocator) Share(id string, millicores int) {
	a.Release(id)
	a.shared[id] = max(0, millicores)
}

// Adopt gives id the same cores that it held before a restart. If they are not
// all free, not ours or not the right number, it calls Take instead.
func (a *coreAllocator) Adopt(id string, millicores int, held []int) []int {
	a.Release(id)
	held = slices.Compact(slices.Sorted(slices.Values(held)))
	free := a.free()
	for _, core := range held {
		if !slices.Contains(free, core) {
			return a.Take(id, millicores)
		}
	}
	if len(held) == 0 || len(held)*1000 != millicores || len(free)-len(held) < a.demand() {
		return a.Take(id, millicores)
	}
	a.exclusive[id] = held
	return slices.Clone(held)
}

// Release takes id's cores back or removes it from the shared pool. It ignores
// an unknown id.
func (a *coreAllocator) Release(id string) {
	delete(a.exclusive, id)
	delete(a.shared, id)
}

// Shared returns the cores of the shared pool, in order. It is empty only if
// every core is exclusive. A member that joins even then, on an overcommitted
// node, may run on [coreAllocator.All].
func (a *coreAllocator) Shared() []int { return a.free() }

// Members returns the ids in the shared pool, in order.
func (a *coreAllocator) Members() []string { return slices.Sorted(maps.Keys(a.shared)) }

// All returns every core, in order.
func (a *coreAllocator) All() []int { return slices.Clone(a.all) }

// demand returns how many cores the members of the shared pool need, at least
// one if there are any.
func (a *coreAllocator) demand() int {
	if len(a.shared) == 0 {
		return 0
	}
	sum := 0
	for _, millicores := range a.shared {
		sum += millicores
	}
	return max(1, (sum+999)/1000)
}

func (a *coreAllocator) free() []int {
	free := slices.Clone(a.all)
	for _, taken := range a.exclusive {
		free = slices.DeleteFunc(free, func(core int) bool { return slices.Contains(taken, core) })
	}
	return free
}
