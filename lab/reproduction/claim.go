package reproduction

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// test is how a simulated value is compared with the published one.
type test int

const (
	// within: it differs by at most a part of the published value.
	within test = iota
	// sign: both have the same sign.
	sign
	// most: it is at most the published value.
	most
)

// rule says how results are judged.
type rule struct {
	// pattern matches PART/RESULT.
	pattern string
	test    test
	// part is the difference that counts as repeated, as a part of the published value; 0 means
	// a quarter.
	part float64
	// paper is the published value where the result's note has none, and where its place in the
	// paper.
	paper float64
	where string
	// because says why the value is not repeated, as far as rows or a paper show it. A cause that
	// nothing shows begins with "we attribute it to". It is "" if the cause is not known.
	because string
}

// quarter is the difference within which a figure counts as repeated by default.
const quarter = 0.25

// Claim is a published value with ours.
type Claim struct {
	// Where is its place in the paper, Result is PART/RESULT.
	Where, Result, Unit string
	// Paper is the published value, Here the simulated one. Ours is faas-infer's, NaN if there
	// is none.
	Paper, Here, Ours float64
	Repeated          bool
	// Verdict is "repeated" or "not", with the tolerance, and the cause.
	Verdict string
}

// published matches the published value in a result's note, as "paper 2952 (Fig. 11)" or
// "paper: best −23.4 (Fig. 10)". The notes are where all commands of the lab put them.
var published = regexp.MustCompile(`paper:? (?:best )?([+−-]?[0-9][0-9.]*)(?: \(([^()]*(?:\([^()]*\)[^()]*)*)\))?`)

// ofPaper returns the published value in a note, and its place.
func ofPaper(note string) (value float64, where string, ok bool) {
	m := published.FindStringSubmatch(note)
	if m == nil {
		return 0, "", false
	}
	value, err := strconv.ParseFloat(strings.TrimSuffix(strings.ReplaceAll(m[1], "−", "-"), "."), 64)
	return value, m[2], err == nil
}

// judge returns the claims of results, in the order of the rules.
func judge(rules []rule, results []report.Result) (claims []Claim) {
	taken := map[string]bool{}
	for _, rule := range rules {
		for _, r := range results {
			if taken[r.Name] || !rule.matches(r.Name) {
				continue
			}
			taken[r.Name] = true
			c := Claim{Where: rule.where, Result: r.Name, Unit: r.Unit, Paper: rule.paper, Here: r.Value, Ours: ours(results, r.Name)}
			if v, where, ok := ofPaper(r.Note); ok && rule.paper == 0 {
				c.Paper = v
				if c.Where == "" {
					c.Where = where
				}
			} else if rule.paper == 0 {
				continue // The paper has no such value.
			}
			c.Repeated = rule.holds(c.Here, c.Paper)
			c.Verdict = rule.verdict(c.Repeated)
			claims = append(claims, c)
		}
	}
	return claims
}

// holds reports whether a simulated value repeats a published one.
func (r rule) holds(here, paper float64) bool {
	switch r.test {
	case sign:
		return here*paper > 0
	case most:
		return here <= paper
	}
	return math.Abs(here-paper) <= r.tolerance()*math.Abs(paper)
}

// tolerance is the difference that counts as repeated, as a part of the published value.
func (r rule) tolerance() float64 { return cmp.Or(r.part, quarter) }

// verdict says whether a value was repeated, by which test, and otherwise why not.
func (r rule) verdict(repeated bool) string {
	how := fmt.Sprintf(" (within %.3g %%)", 100*r.tolerance())
	switch r.test {
	case sign:
		how = " (the sign)"
	case most:
		how = " (at most)"
	}
	if repeated {
		return "repeated" + how
	}
	return "not" + how + "; " + cmp.Or(r.because, "the cause is unknown")
}

// ours returns faas-infer's value of a result of another system, NaN if there is none.
func ours(results []report.Result, name string) float64 {
	var others []string
	for _, policy := range append(baselines.Names(), baselines.ForVariants()...) {
		if base, ok := strings.CutSuffix(name, "."+policy); ok {
			others = append(others, base+"."+systems.FaaSInfer)
		}
	}
	for of, to := range map[string]string{".gillis": ".ours", ".lsth": ".faas-infer_over_hhp-window", ".asyfunc": ".faas-infer"} {
		if base, ok := strings.CutSuffix(name, of); ok {
			others = append(others, base+to)
		}
	}
	i := slices.IndexFunc(results, func(r report.Result) bool { return r.Name != name && slices.Contains(others, r.Name) })
	if i < 0 {
		return math.NaN()
	}
	return results[i].Value
}

// digits formats a value with four digits, a NaN as a dash.
func digits(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.Abs(v) >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return fmt.Sprintf("%.4g", v)
}
