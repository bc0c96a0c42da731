package cut_test

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
)

const plan = `{"model":"m","members":2,"rounds":[{"first":0,"end":2,"cut":"2x1","on":[0,1]},{"first":2,"end":END,"cut":"whole","on":[0]}]}`

// A plan that is read makes the parts that it names, and prints as it was.
func TestPlan(t *testing.T) {
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(plan, "END", "5", 1)
	if n := len(c.Layers()); n != 5 {
		t.Fatalf("mnist has %d layers", n)
	}
	p, err := cut.ReadPlan(strings.NewReader(text))
	if err != nil || p.String() != text {
		t.Fatalf("%v, %v", p, err)
	}
	parts, err := p.Parts(c, "m")
	if err != nil || len(parts) != 2 || len(parts[0]) != 2 || len(parts[1]) != 1 {
		t.Errorf("%v, %v", parts, err)
	}
	if _, err := p.Parts(c, "other"); err == nil || !strings.Contains(err.Error(), "the plan is of the model m") {
		t.Errorf("another model: %v", err)
	}
	for what, c2 := range map[string][2]string{
		"too few layers": {`"end":5`, `"end":4`}, "too many": {`"end":5`, `"end":6`}, "no such cut": {`2x1`, `2by1`},
		"a number that is none": {`2x1`, `2x-1`}, "too many parts": {`2x1`, `2x2`}, "more parts than positions": {`2x1`, `200x1`}, "rows": {`2x1`, `rows 2`},
	} {
		p, err := cut.ReadPlan(strings.NewReader(strings.Replace(text, c2[0], c2[1], 1)))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := p.Parts(c, "m"); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestPlansThatAreRefused(t *testing.T) {
	for what, c := range map[string]struct{ from, to, says string }{
		"a gap":              {`"first":2`, `"first":3`, "layers 2 to 2 are in no round"},
		"an overlap":         {`"first":2`, `"first":1`, "which an earlier round computes"},
		"nothing":            {`"first":2,"end":5`, `"first":2,"end":2`, "which are none"},
		"no members":         {`"members":2`, `"members":0`, "members is 0"},
		"an unknown member":  {`[0,1]`, `[0,2]`, "there are members 0 to 1"},
		"one member twice":   {`[0,1]`, `[1,1]`, "member 1 computes two parts"},
		"nobody":             {`[0,1]`, `[]`, "has no parts"},
		"no model":           {`"model":"m"`, `"model":""`, "model is not set"},
		"an unknown field":   {`"cut"`, `"how"`, "unknown field"},
		"what is not a plan": {`{"model"`, `["model"`, "plan:"},
	} {
		text := strings.Replace(strings.Replace(plan, "END", "5", 1), c.from, c.to, 1)
		if _, err := cut.ReadPlan(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add(strings.Replace(plan, "END", "5", 1))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := cut.ReadPlan(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := cut.ReadPlan(strings.NewReader(p.String()))
		if err != nil || again.Hash() != p.Hash() {
			t.Errorf("%s reads back as %v, %v", p, again, err)
		}
	})
}
