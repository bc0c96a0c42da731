package correction

import (
	"testing"

	"github.com/faas-infer/faas-infer/profiler"
)

// A state differs from an earlier one if a restart would predict with it otherwise.
func TestDiffers(t *testing.T) {
	of := func(edit func(s *State)) State {
		s := State{Profile: "p", Beside: profiler.Beside{Batch: 100, Request: 10}, Classes: []Class{
			{Millicores: 1000, Largest: 1, Factor: 1.2, Weights: []float64{5, 5}},
			{Millicores: 1000, Largest: 2, Weights: []float64{10}},
		}}
		if edit != nil {
			edit(&s)
		}
		return s
	}
	before := of(nil).Outline()
	for name, test := range map[string]struct {
		edit func(s *State)
		want bool
	}{
		"nothing":                      {nil, false},
		"other weights, the same sum":  {func(s *State) { s.Classes[0].Weights = []float64{1, 9} }, false},
		"a factor 4 % higher":          {func(s *State) { s.Classes[0].Factor = 1.248 }, false},
		"a factor 6 % higher":          {func(s *State) { s.Classes[0].Factor = 1.28 }, true},
		"a first factor of 1.02":       {func(s *State) { s.Classes[1].Factor = 1.02 }, false},
		"a first factor of 1.5":        {func(s *State) { s.Classes[1].Factor = 1.5 }, true},
		"nearly twice the evidence":    {func(s *State) { s.Classes[1].Weights = []float64{10, 9} }, false},
		"twice the evidence":           {func(s *State) { s.Classes[1].Weights = []float64{20} }, true},
		"half the evidence":            {func(s *State) { s.Classes[1].Weights = []float64{5} }, true},
		"more time outside the engine": {func(s *State) { s.Beside.Request = 11 }, true},
		"a new class":                  {func(s *State) { s.Classes = append(s.Classes, Class{Millicores: 2000, Largest: 1}) }, true},
		"another share":                {func(s *State) { s.Classes[0].Millicores = 500 }, true},
		"another profile":              {func(s *State) { s.Profile = "q" }, true},
		"other rows":                   {func(s *State) { s.Elements = 7 }, true},
	} {
		if got := of(test.edit).Differs(before); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		if of(test.edit).Differs(of(test.edit).Outline()) {
			t.Errorf("%s: it differs from its own outline", name)
		}
	}
}
