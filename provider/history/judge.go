package history

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// State is how a function does.
type State string

// The states.
const (
	// OK: it keeps its objective. Idle: it has no instance, and a request starts one.
	OK   State = "ok"
	Idle State = "idle"
	// Misses: too many of the last minute's requests were late, refused or failed.
	Misses State = "misses"
	// Starting: its model is being read, or its first instance starts.
	Starting State = "starting"
	// Broken: it cannot answer.
	Broken State = "broken"
)

// Lack is the reason why a function has too few instances.
type Lack int

// The reasons: NoLack stands for none.
const (
	NoLack Lack = iota
	// NoRoom: no node has room. NoNode: it may run on none.
	NoRoom
	NoNode
	// AtLimit: it has as many instances as it may have.
	AtLimit
	// TooSlow: no config meets the objective.
	TooSlow
)

// Situation is what is known of a function now.
type Situation struct {
	// Objective is 0 without one. Percentile is the part in % of the requests that must keep it.
	Objective  time.Duration
	Percentile float64
	// Minute is the last minute.
	Minute Counts
	// Load is the measured load and Carries what the instances carry, in requests per second.
	Load, Carries float64
	// Waiting are requests without an instance.
	Waiting int
	// Instances are those that stay: Ready answer, the others start or are parked.
	Instances, Ready, Parked int
	// Max is the maximum number of instances, 0 for none.
	Max  int
	Lack Lack
	// Least is the shortest objective that the model can keep, 0 if that is not known. Roomy is one for which the nodes
	// have room under the load, 0 if none is known.
	Least, Roomy time.Duration
	// Slower is what executions take over what the plan counts with, 0 if that is not known.
	Slower float64
	// Problem is what the provider says of the function, "" if nothing. Hopeless: it keeps every request
	// from being answered. Slight: it keeps no instance from serving.
	Problem          string
	Hopeless, Slight bool
	// Progress says what is found out about a new model, "" once it is known.
	Progress string
}

// Remedy is one thing that a button can do. At most one of Objective and Max is not 0; with none, the
// button shows what the function did.
type Remedy struct {
	Label     string
	Objective time.Duration
	Max       int
}

// Verdict says how a function does, in a sentence for people: "" if all is well. Remedy is nil if there is
// nothing to do.
type Verdict struct {
	State    State
	Sentence string
	Remedy   *Remedy
}

// showWhy is the remedy if nothing better is known.
const showWhy = "Show why"

// Judge says how a function does.
func Judge(s Situation) Verdict {
	switch {
	case s.Hopeless || s.Problem != "" && !s.Slight && s.Ready == 0 && s.Parked == 0 && s.Progress == "":
		return Verdict{Broken, sentence(or(s.Problem, "no instance can serve")), s.remedy()}
	case s.Progress != "":
		return Verdict{Starting, sentence(s.Progress), nil}
	case s.Ready == 0 && s.Instances > s.Parked:
		return Verdict{Starting, s.firstStarts(), nil}
	case s.misses():
		return Verdict{Misses, join(s.share(), s.cause()), s.remedy()}
	}
	v := Verdict{State: OK}
	if s.Instances == 0 && s.Waiting == 0 {
		v.State = Idle
	}
	if s.Problem != "" {
		v.Sentence, v.Remedy = sentence(s.Problem), &Remedy{Label: showWhy}
	}
	return v
}

// firstStarts says that no instance is ready yet.
func (s *Situation) firstStarts() string {
	switch {
	case s.Waiting == 1:
		return "the first instance starts; 1 request waits"
	case s.Waiting > 0:
		return fmt.Sprintf("the first instance starts; %d requests wait", s.Waiting)
	}
	return "the first instance starts"
}

// misses reports whether more requests were not in time than the percentile allows. A single one among many is chance.
func (s *Situation) misses() bool {
	n, bad := s.Minute.Answered(), s.Minute.Answered()-s.Minute.InTime
	if bad == 0 {
		return false
	}
	allowed := 1 - s.percentile()/100
	return float64(bad) > allowed*float64(n)+1e-9 && (bad > 1 || n == 1)
}

func (s *Situation) percentile() float64 {
	if s.Percentile <= 0 {
		return 99
	}
	return s.Percentile
}

// share says which part of the requests was not in time: "24 % refused, 3 % late".
func (s *Situation) share() string {
	var parts []string
	for _, x := range []struct {
		n    uint64
		what string
	}{{s.Minute.Refused, "refused"}, {s.Minute.Late, "late"}, {s.Minute.Failed, "failed"}} {
		if x.n > 0 {
			parts = append(parts, Percent(100*float64(x.n)/float64(s.Minute.Answered()))+" "+x.what)
		}
	}
	return strings.Join(parts, ", ")
}

// cause says why requests are not in time, with what is known.
func (s *Situation) cause() string {
	over := s.Load > 0 && s.Carries > 0 && s.Load > s.Carries
	load := fmt.Sprintf("load %s/s, instances carry %s/s", Rate(s.Load), Rate(s.Carries))
	worst := max(s.Minute.Refused, s.Minute.Late, s.Minute.Failed)
	switch {
	case s.short() && s.Least > 0:
		return fmt.Sprintf("the objective is %s, and the shortest that the model can keep is %s", Milliseconds(s.Objective), Milliseconds(s.Least))
	case worst == s.Minute.Failed && s.Problem != "":
		return sentence(s.Problem)
	case worst == s.Minute.Failed && worst > s.Minute.Refused:
		return "instances answer with errors"
	case s.Ready == 0 && s.Parked == 0:
		return join("no instance is ready", s.lack())
	case s.Lack != NoLack && s.Objective == 0:
		return or(s.lack(), load)
	case over || s.Lack != NoLack && s.Lack != TooSlow:
		return join(load, or(s.lack(), s.starting()))
	case s.Instances > s.Ready+s.Parked:
		return join("load "+Rate(s.Load)+"/s", s.starting())
	case s.Slower >= 1.2:
		return fmt.Sprintf("executions take %s times as long as predicted", Rate(math.Round(s.Slower*10)/10))
	case s.Problem != "":
		return sentence(s.Problem)
	case s.Load > 0 && s.Carries > 0:
		return load + " now"
	}
	return ""
}

// short reports whether no config of the model meets the objective.
func (s *Situation) short() bool {
	return s.Objective > 0 && (s.Lack == TooSlow || s.Least > s.Objective)
}

func (s *Situation) lack() string {
	switch s.Lack {
	case NoRoom:
		return "no node has room"
	case NoNode:
		return "it may run on no node"
	case AtLimit:
		return fmt.Sprintf("it has the maximum of %s", instances(max(s.Max, s.Instances)))
	}
	return ""
}

// starting says how many instances are on their way.
func (s *Situation) starting() string {
	n := s.Instances - s.Ready - s.Parked
	switch {
	case n == 1:
		return "1 instance starts"
	case n > 1:
		return fmt.Sprintf("%d instances start", n)
	}
	return ""
}

// remedy is the one thing that would help.
func (s *Situation) remedy() *Remedy {
	switch {
	case s.short() && s.Least > 0:
		slo := Round(max(s.Least, s.Objective+1))
		return &Remedy{Label: "Allow " + Milliseconds(slo), Objective: slo}
	case s.Lack == AtLimit && s.Max > 0:
		n := s.Max + 1
		if s.Carries > 0 && s.Load > s.Carries { // A tenth more than the load, as plans do.
			n = max(n, int(math.Ceil(float64(max(1, s.Instances))*1.1*s.Load/s.Carries)))
		}
		return &Remedy{Label: "Allow " + instances(n), Max: n}
	case s.Lack == NoRoom && s.Roomy > s.Objective:
		return &Remedy{Label: "Allow " + Milliseconds(s.Roomy), Objective: s.Roomy}
	}
	return &Remedy{Label: showWhy}
}

// Round rounds a time up to two digits that people would write.
func Round(d time.Duration) time.Duration {
	unit := time.Microsecond
	for unit*100 < d {
		unit *= 10
	}
	return (d + unit - 1) / unit * unit
}

// Milliseconds is a time in the form of the console.
func Milliseconds(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.4g s", d.Seconds())
	}
	return fmt.Sprintf("%.4g ms", float64(d)/float64(time.Millisecond))
}

// Rate is a rate, or another figure of at least 0, without digits that say nothing.
func Rate(perSecond float64) string {
	if perSecond >= 100 {
		return fmt.Sprintf("%.0f", perSecond)
	}
	return fmt.Sprintf("%.3g", perSecond)
}

// Percent is a share in %: one that is not 0 does not read as 0, and one below 100 not as 100.
func Percent(p float64) string {
	switch {
	case p > 0 && p < 0.1:
		return "< 0.1 %"
	case p < 9.95:
		return fmt.Sprintf("%.2g %%", p)
	case p < 100 && p > 99:
		return "> 99 %"
	}
	return fmt.Sprintf("%.0f %%", p)
}

func instances(n int) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}

// maxSentence is how many bytes of a problem a sentence shows: it may hold a log.
const maxSentence = 300

// sentence shortens a problem to one line.
func sentence(problem string) string {
	problem = strings.ToValidUTF8(strings.Join(strings.Fields(problem), " "), "")
	if len(problem) > maxSentence {
		problem = strings.ToValidUTF8(problem[:maxSentence], "") + " …"
	}
	return problem
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// join joins a share and its cause, or the parts of a cause.
func join(a, b string) string {
	switch {
	case a == "" || b == "":
		return a + b
	case strings.HasPrefix(a, "load") || strings.HasPrefix(a, "no instance"):
		return a + ", " + b
	}
	return a + ": " + b
}
