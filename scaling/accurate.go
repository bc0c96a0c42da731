package scaling

import (
	"cmp"
	"slices"
)

// Grade is one way to answer a function's requests: by artefacts of at least an accuracy, in
// percent. Cost is what the function's whole load then costs.
type Grade struct{ Accuracy, Cost float64 }

// Graded is a function that prefers accurate answers ([Function.Accurate]).
type Graded struct {
	// Load is in requests per second. It weighs the accuracy of the function's answers
	// against those of other functions.
	Load float64
	// Grades has those that the function's floor and SLO admit, in any order.
	Grades []Grade
}

// Blend says how accurate a function's answers are to be: a part of the load is answered with at
// least the accuracy Upper, the rest with at least Lower.
type Blend struct{ Upper, Lower, Part float64 }

// Mean is the least mean accuracy of a blend's answers.
func (b Blend) Mean() float64 { return b.Part*b.Upper + (1-b.Part)*b.Lower }

// upgrade is a step of a function from one grade to a better one.
type upgrade struct {
	function int
	from, to Grade
	// gain is in percent times requests per second.
	gain, cost float64
}

// MostAccurate returns, for each function, the blend with which the mean accuracy of all answers
// is the highest that a budget pays for. All load comes first: each function begins at its
// cheapest grade, whatever the budget is. Then the upgrade with the highest gain per cost comes
// next, until the budget ends in the middle of one. This is the optimum of the linear program.
//
// For example a function's load costs 1, 2 and 5 at 70, 76 and 80 %. The first upgrade gains 6
// points for 1, the second 4 points for 3. A budget of 3.5 pays for half of the second: a half
// of the answers has 80 %, the rest 76 %.
func MostAccurate(functions []Graded, budget float64) []Blend {
	blends := make([]Blend, len(functions))
	var upgrades []upgrade
	for i, f := range functions {
		steps := hull(f.Grades)
		if len(steps) == 0 {
			continue
		}
		blends[i] = Blend{steps[0].Accuracy, steps[0].Accuracy, 1}
		budget -= steps[0].Cost
		for k, to := range steps[1:] {
			upgrades = append(upgrades, upgrade{i, steps[k], to, f.Load * (to.Accuracy - steps[k].Accuracy), to.Cost - steps[k].Cost})
		}
	}
	slices.SortStableFunc(upgrades, func(a, b upgrade) int { return cmp.Compare(b.gain*a.cost, a.gain*b.cost) })
	for _, u := range upgrades {
		part := 1.0
		if u.cost > 0 {
			part = min(1, max(0, budget)/u.cost)
		}
		if part == 0 {
			break
		}
		blends[u.function] = Blend{u.to.Accuracy, u.from.Accuracy, part}
		if budget -= part * u.cost; part < 1 {
			break
		}
	}
	return blends
}

// hull returns the cheapest grade, of equal ones the most accurate, and those above it between
// which no blend of two others is better: each gains less per cost than the one before.
func hull(grades []Grade) (steps []Grade) {
	sorted := slices.Clone(grades)
	slices.SortFunc(sorted, func(a, b Grade) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(b.Accuracy, a.Accuracy))
	})
	for _, g := range sorted {
		if n := len(steps); n > 0 && g.Accuracy <= steps[n-1].Accuracy {
			continue
		}
		for n := len(steps); n > 1; n = len(steps) {
			a, b := steps[n-2], steps[n-1]
			if (b.Accuracy-a.Accuracy)*(g.Cost-a.Cost) > (g.Accuracy-a.Accuracy)*(b.Cost-a.Cost) {
				break
			}
			steps = steps[:n-1]
		}
		steps = append(steps, g)
	}
	return steps
}
