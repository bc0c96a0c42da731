package infaas

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
)

// answers says how a model's outputs give a class for each row.
type answers struct {
	kind   answerKind
	output int
}

// answerKind is the meaning of the output that answers uses.
type answerKind uint8

const (
	// values: no output gives a class.
	values answerKind = iota
	// scores: one number for each class.
	scores
	// chance: one number, the chance of class 1 and not class 0.
	chance
	// class: the class's number.
	class
)

// answersOf finds the output that gives the class: scores for several classes if there are
// any, otherwise a chance, otherwise the class itself.
func answersOf(outputs []tensor.Info) answers {
	best := answers{}
	for i, o := range outputs {
		kind := values
		real := o.Type == tensor.FP16 || o.Type == tensor.BF16 || o.Type == tensor.FP32 || o.Type == tensor.FP64
		single := len(o.Shape) == 1 || len(o.Shape) == 2 && o.Shape[1] == 1
		switch {
		case real && single:
			kind = chance
		case real && len(o.Shape) == 2:
			kind = scores
		case single && o.Type != tensor.Bytes:
			kind = class
		}
		if kind != values && (best.kind == values || kind < best.kind) {
			best = answers{kind, i}
		}
	}
	return best
}

// errNoClasses refuses outputs without classes.
func errNoClasses(outputs []tensor.Info) error {
	return fmt.Errorf("the model's outputs are %s: accuracy needs an output with a score for each class, [?,classes], or one chance, [?,1]; it is not defined for a regression", tensor.Describe(outputs))
}

// of returns a row's scores, one for each class. If the output is the class, the scores are
// those of the classes up to it.
func (a answers) of(out []tensor.Tensor, row int) []float64 {
	t := out[a.output]
	width := t.Type.Size()
	cells := len(t.Data) / width / int(t.Shape[0])
	at := func(i int) float64 { return t.Type.Number(t.Data[(row*cells+i)*width:]) }
	switch a.kind {
	case chance:
		return []float64{1 - at(0), at(0)}
	case class:
		n := at(0)
		if !(n >= 0 && n < maxClass) {
			return []float64{math.NaN()}
		}
		s := make([]float64, int(n)+1)
		s[int(n)] = 1
		return s
	}
	s := make([]float64, cells)
	for i := range s {
		s[i] = at(i)
	}
	return s
}

// maxClass bounds an output that is a class's number.
const maxClass = 1 << 20

// fits checks labels against the scores of a row.
func (a answers) fits(metric registration.Metric, labels []int, scores []float64) error {
	classes := len(scores)
	switch {
	case a.kind == class && metric == registration.Top5:
		return fmt.Errorf("--metric is %s, and the model's output is one class; use %s", metric, registration.Top1)
	case a.kind == class:
		return nil
	case metric == registration.Top5 && classes <= 5:
		return fmt.Errorf("--metric is %s, and the model has %d classes, so that every answer is right; use %s", metric, classes, registration.Top1)
	}
	for row, label := range labels {
		if label < classes {
			continue
		}
		if a.kind == chance {
			return fmt.Errorf("labelled data: row %d has the label %d, and the model answers with one number, the chance of class 1: labels must be 0 or 1; accuracy is not defined for a regression", row, label)
		}
		return fmt.Errorf("labelled data: row %d has the label %d, and the model has %d classes, from 0 to %d", row, label, classes, classes-1)
	}
	return nil
}

// highest returns the class with the highest score, -1 if a score is not a number.
func highest(scores []float64) int {
	best := 0
	for i, s := range scores {
		if math.IsNaN(s) {
			return -1
		}
		if s > scores[best] {
			best = i
		}
	}
	return best
}

// agreeing is the maximum difference between two answers that agree, relative to the largest
// number of the row's output. It applies to models whose outputs give no class.
const agreeing = 0.05

// agree reports whether two models answer a row alike: with the same class or, if the
// outputs give none, with nearly the same numbers.
func (a answers) agree(old, fresh []tensor.Tensor, row int) bool {
	if a.kind != values {
		was, is := highest(a.of(old, row)), highest(a.of(fresh, row))
		return was == is && is >= 0
	}
	for i := range old {
		all := answers{scores, i}
		before, after := all.of(old, row), all.of(fresh, row)
		largest := 0.0
		for _, v := range before {
			largest = max(largest, math.Abs(v))
		}
		for k := range before {
			if !(math.Abs(before[k]-after[k]) <= agreeing*largest) {
				return false
			}
		}
	}
	return true
}

// numberless reports whether a row has an output that is not a number.
func numberless(out []tensor.Tensor, row int) bool {
	for i := range out {
		all := answers{scores, i}
		if highest(all.of(out, row)) < 0 {
			return true
		}
	}
	return false
}
