package local

import (
	"fmt"
	"slices"
	"testing"
)

func TestWholeCoresAreExclusiveAndTheRestIsShared(t *testing.T) {
	a := newCoreAllocator([]int{3, 1, 0, 2})
	if got := a.Take("two", 2000); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("2000m got cores %v, want 0 and 1", got)
	}
	if got := a.Take("half", 500); got != nil {
		t.Fatalf("500m got cores %v for itself", got)
	}
	if got := a.Shared(); !slices.Equal(got, []int{2, 3}) {
		t.Fatalf("shared pool is %v, want 2 and 3", got)
	}
	// One core must stay for the half.
	if got := a.Take("greedy", 2000); got != nil {
		t.Fatalf("2000m got %v though only one core can be given away", got)
	}
	a.Release("greedy")
	if got := a.Take("one", 1000); !slices.Equal(got, []int{2}) {
		t.Fatalf("1000m got %v, want 2", got)
	}
	a.Release("two")
	if got := a.Shared(); !slices.Equal(got, []int{0, 1, 3}) {
		t.Fatalf("shared pool is %v after a release", got)
	}
	if got := a.Members(); !slices.Equal(got, []string{"half"}) {
		t.Fatalf("members of the shared pool: %v", got)
	}
}

func TestAllCoresMayBeGivenAwayWhileNobodyShares(t *testing.T) {
	a := newCoreAllocator([]int{0, 1})
	if got := a.Take("all", 2000); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("got %v", got)
	}
	if got := a.Shared(); len(got) != 0 {
		t.Fatalf("shared pool is %v", got)
	}
	if got := a.All(); !slices.Equal(got, []int{0, 1}) {
		t.Fatalf("all cores: %v", got)
	}
}

func TestAdoptKeepsTheCoresThatWereHeld(t *testing.T) {
	a := newCoreAllocator([]int{0, 1, 2, 3})
	if got := a.Adopt("old", 2000, []int{3, 1}); !slices.Equal(got, []int{1, 3}) {
		t.Fatalf("adopted %v, want 1 and 3", got)
	}
	if got := a.Adopt("clash", 1000, []int{3}); !slices.Equal(got, []int{0}) {
		t.Fatalf("one whose core is taken got %v, want 0", got)
	}
	if got := a.Adopt("foreign", 1000, []int{9}); !slices.Equal(got, []int{2}) {
		t.Fatalf("one whose core is not ours got %v, want 2", got)
	}
}

func FuzzNoCoreIsHandedOutTwice(f *testing.F) {
	f.Add([]byte{4, 0, 10, 1, 5, 2, 20, 0, 0, 3, 15})
	f.Add([]byte{2, 0, 20, 1, 1, 0, 0, 2, 20})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) == 0 {
			return
		}
		all := make([]int, int(script[0])%17)
		for i := range all {
			all[i] = 2 * i
		}
		a := newCoreAllocator(all)
		held := map[string][]int{}
		for i := 1; i+1 < len(script); i += 2 {
			id := fmt.Sprint(script[i] % 8)
			millicores := int(script[i+1]) * 100
			sharing := slices.DeleteFunc(a.Members(), func(member string) bool { return member == id })
			hadPool := len(a.Shared()) > 0
			switch {
			case millicores == 0:
				a.Release(id)
				delete(held, id)
			case script[i] >= 128:
				held[id] = a.Adopt(id, millicores, held[id])
			default:
				held[id] = a.Take(id, millicores)
			}
			check(t, a, all, held)
			if len(sharing) > 0 && hadPool && len(a.Shared()) == 0 {
				t.Fatalf("%v were left without a core", sharing)
			}
		}
	})
}

func check(t *testing.T, a *coreAllocator, all []int, held map[string][]int) {
	t.Helper()
	owner := map[int]string{}
	for id, cores := range held {
		for _, core := range cores {
			if other, taken := owner[core]; taken {
				t.Fatalf("core %d belongs to %s and %s", core, other, id)
			}
			if !slices.Contains(all, core) {
				t.Fatalf("core %d was never ours", core)
			}
			owner[core] = id
		}
	}
	shared := a.Shared()
	if len(shared)+len(owner) != len(all) {
		t.Fatalf("%d shared and %d exclusive of %d cores", len(shared), len(owner), len(all))
	}
	for _, core := range shared {
		if id, taken := owner[core]; taken {
			t.Fatalf("core %d is shared and belongs to %s", core, id)
		}
	}
}
