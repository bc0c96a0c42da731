package batching

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Slots gives out the lowest free number, and an instance keeps its number.
func TestSlotsStaySmall(t *testing.T) {
	var s Slots
	give := func(id cluster.InstanceID, want int) {
		t.Helper()
		if got, _ := s.Give(id); got != want {
			t.Errorf("%s has %d, want %d", id, got, want)
		}
	}
	give("a", 0)
	give("b", 1)
	give("c", 2)
	give("b", 1)
	s.Drop("b")
	s.Drop("a")
	s.Drop("nobody")
	give("d", 0)
	give("e", 1)
	give("f", 3)
	if _, known := s.Find("a"); known || s.Len() != 4 {
		t.Errorf("a is known: %v; %d have a number, want 4", known, s.Len())
	}
	if slot, known := s.Find("c"); !known || slot != 2 {
		t.Errorf("c is found at %d, %v", slot, known)
	}
}

func FuzzSet(f *testing.F) {
	f.Add(uint64(1), uint16(500))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		random := rand.New(rand.NewPCG(seed, 1))
		var s Set
		model := map[int]bool{}
		span := 1 << random.IntN(15)
		for range steps % 2000 {
			i := random.IntN(span)
			if random.IntN(2) == 0 {
				s.Add(i)
				model[i] = true
			} else {
				s.Remove(i)
				delete(model, i)
			}
			want := -1
			for m := range model {
				if want < 0 || m < want {
					want = m
				}
			}
			if s.First() != want || s.Len() != len(model) || s.Has(i) != model[i] {
				t.Fatalf("first %d of %d, %d is in: %v; want %d of %d, %v", s.First(), s.Len(), i, s.Has(i), want, len(model), model[i])
			}
		}
	})
}

func FuzzRanking(f *testing.F) {
	f.Add(uint64(1), uint16(500))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		random := rand.New(rand.NewPCG(seed, 2))
		var r Ranking[float64]
		model := map[int]float64{}
		for range steps % 2000 {
			slot := random.IntN(50)
			switch random.IntN(8) {
			case 0, 1, 2:
				r.Remove(slot)
				delete(model, slot)
			case 3:
				r.Move(func(slot int, key float64) float64 { model[slot] = key - 3; return key - 3 })
			default:
				model[slot] = float64(random.IntN(20))
				r.Set(slot, model[slot])
			}
			if r.Len() != len(model) {
				t.Fatalf("%d are in, want %d", r.Len(), len(model))
			}
			if len(model) == 0 {
				continue
			}
			want := -1
			for s, key := range model {
				if want < 0 || key < model[want] || key == model[want] && s < want {
					want = s
				}
			}
			if got, key := r.First(); got != want || key != model[want] {
				t.Fatalf("first is %d with %v, want %d with %v", got, key, want, model[want])
			}
			if _, in := model[slot]; r.Has(slot) != in {
				t.Fatalf("%d is in: %v", slot, !in)
			}
		}
	})
}

func FuzzAgenda(f *testing.F) {
	f.Add(uint64(1), uint16(800))
	f.Fuzz(func(t *testing.T, seed uint64, steps uint16) {
		random := rand.New(rand.NewPCG(seed, 3))
		var a Agenda
		var model []Busy
		for i := range int(steps % 2000) {
			if n := len(model); n > 0 && random.IntN(2) == 0 {
				// Mostly one of the first.
				j := min(random.IntN(n), random.IntN(n), random.IntN(n))
				a.Remove(model[j])
				model = slices.Delete(model, j, j+1)
			} else {
				e := Busy{time.Duration(i + random.IntN(40)), i}
				a.Add(e)
				model = append(model, e)
				slices.SortFunc(model, func(x, y Busy) int { return cmp.Or(cmp.Compare(x.Until, y.Until), cmp.Compare(x.Slot, y.Slot)) })
			}
			a.Remove(Busy{time.Duration(i), -1}) // Nobody.
			if a.Len() != len(model) || !slices.Equal(a.All(), model) {
				t.Fatalf("agenda\n%v, want\n%v", a.All(), model)
			}
		}
	})
}

func TestFastest(t *testing.T) {
	var f Fastest
	for _, step := range []struct {
		old, new, least time.Duration
		changed         bool
	}{
		{-1, 5, 5, true}, {-1, 5, 5, false}, {-1, 3, 3, true}, {3, 7, 5, true}, {5, -1, 5, false}, {5, -1, 7, true}, {7, 7, 7, false}, {7, -1, 0, true},
	} {
		if changed := f.Change(step.old, step.new); changed != step.changed || f.Least() != step.least {
			t.Errorf("%v for %v: least %v, changed %v, want %v, %v", step.new, step.old, f.Least(), changed, step.least, step.changed)
		}
	}
}
