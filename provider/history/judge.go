package history

import (
	"fmt"
	"math"
	"strconv"
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
	// Minute is the last minute, or what was answered in it since the deployment changed. WrongCode is the status of
	// what the client has to change, 0 for several. Seen is the time that few answers exceed, 0 if that is not known.
	Minute    Counts
	WrongCode int
	// Recent is what was answered in the last seconds: a part of Minute that says whether the misses go on.
	Recent Counts
	Seen   time.Duration
	// Cold: at some time in the minute no instance was ready.
	Cold bool
	// Worst is the situation in the second of the minute with the most misses, nil if that is not known.
	Worst *Situation
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
		why := or(s.Problem, "no instance can serve")
		if s.Lack == TooSlow && s.short() && s.Least > 0 {
			why = s.tooShort()
		}
		return Verdict{Broken, sentence(why), s.remedy()}
	case s.Progress != "":
		return Verdict{Starting, sentence(s.Progress), nil}
	case s.Ready == 0 && s.Instances > s.Parked:
		return Verdict{Starting, s.firstStarts(), nil}
	case s.misses():
		return Verdict{Misses, join(s.share(), s.cause()), s.remedy()}
	}
	v := Verdict{State: OK, Sentence: s.remark()}
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

// enough is how many misses show that a function misses its objective, as for the alert FaasInferMissesObjective, and few
// how many do if they are at least half of the requests. Fewer are chance.
const (
	enough = 10
	few    = 3
)

// misses reports whether more requests were not in time than the percentile allows.
func (s *Situation) misses() bool {
	n, bad := s.Minute.Answered(), s.Minute.Answered()-s.Minute.InTime
	allowed := 1 - s.percentile()/100
	return float64(bad) > allowed*float64(n)+1e-9 && (bad >= enough || bad >= few && 2*bad >= n)
}

// remark says what is strange about a function that does not miss its objective: no request was answered well.
func (s *Situation) remark() string {
	n, wrong := s.Minute.Answered(), s.Minute.Wrong
	switch {
	case s.Minute.InTime > 0 || n == 0 && wrong == 0 || n >= few:
		return ""
	case n == 0:
		code, of := "4xx", "model"
		if s.WrongCode > 0 {
			code = strconv.Itoa(s.WrongCode)
		}
		if s.Objective == 0 {
			of = "function"
		}
		if wrong == 1 {
			return fmt.Sprintf("the only request was refused as wrong (%s): it does not fit the %s", code, of)
		}
		return fmt.Sprintf("all %d requests were refused as wrong (%s): the client's request does not fit the %s", wrong, code, of)
	case s.Minute.Late == n && s.Cold:
		return map[uint64]string{1: "one request", 2: "two requests"}[n] + " waited for the first instance"
	case n == 1 && s.Minute.Failed == 1:
		return "the only request has failed"
	case n == 1:
		return "the only request was " + strings.TrimPrefix(s.share(), "100 % ")
	}
	return "of two requests, none was answered in time: " + s.share()
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

// cause says why requests are not in time, with what is known: the reason of the worst second. If it has passed, that is
// said in the past tense, with what is now.
func (s *Situation) cause() string {
	worst := max(s.Minute.Refused, s.Minute.Late, s.Minute.Failed)
	switch {
	case s.short() && s.Least > 0:
		return s.tooShort()
	case worst == s.Minute.Failed && s.Problem != "":
		return sentence(s.Problem)
	case worst == s.Minute.Failed && worst > s.Minute.Refused:
		return "instances answer with errors"
	}
	w := s.decisive()
	if w == s {
		return s.reason(present)
	}
	then := w.reason(past)
	if s.Load > 0 && s.Carries > 0 {
		then += "; now " + s.figures(present)
	}
	return then
}

// decisive is the situation that explains the misses: that of the worst second unless the present one has the same
// reason, or lacks instances now.
func (s *Situation) decisive() *Situation {
	if s.Worst == nil {
		return s
	}
	switch now, then := s.kind(), s.Worst.kind(); {
	case then == unknown || now == unready || now == unknown && s.goesOn():
		return s
	case now == crowded && (then != crowded || s.lack(present) != "" || s.Lack == s.Worst.Lack):
		return s
	case now == then && now != crowded:
		return s
	}
	return s.Worst
}

// kind is a kind of reason for misses.
type kind int

const (
	unknown kind = iota
	unready
	crowded
	starting
	slower
	problem
)

// kind says which reason a situation shows. A lack of room is none as long as the instances carry the load.
func (s *Situation) kind() kind {
	over := s.Load > s.Carries && (s.Objective > 0 || s.Carries > 0)
	switch {
	case s.Ready == 0 && s.Parked == 0:
		return unready
	case over || s.lack(present) != "" && s.Carries == 0:
		return crowded
	case s.Instances > s.Ready+s.Parked:
		return starting
	case s.Slower >= 1.2:
		return slower
	case s.Problem != "":
		return problem
	}
	return unknown
}

// reason says what [Situation.kind] found.
func (s *Situation) reason(t tense) string {
	switch s.kind() {
	case unready:
		return join("no instance "+t.of("is", "was")+" ready", s.lack(t))
	case crowded:
		if s.Objective == 0 {
			return or(s.lack(t), s.figures(t))
		}
		return join(s.figures(t), or(s.lack(t), s.starting(t)))
	case starting:
		return join("load "+t.of("", "was ")+Rate(s.Load)+"/s", s.starting(t))
	case slower:
		return fmt.Sprintf("executions %s %s times as long as predicted", t.of("take", "took"), Rate(math.Round(s.Slower*10)/10))
	case problem:
		return sentence(s.Problem)
	}
	switch {
	case s.goesOn():
		return lately + ", and still now: " + s.exceeded()
	case s.Load > 0 && s.Carries > 0:
		return lately + "; now " + s.figures(present)
	}
	return ""
}

// goesOn reports whether requests still miss the objective, although the instances seem to carry the load.
func (s *Situation) goesOn() bool {
	bad := s.Recent.Answered() - s.Recent.InTime
	allowed := 1 - s.percentile()/100
	return s.Load > 0 && s.Carries > s.Load && bad > 0 && float64(bad) > allowed*float64(s.Recent.Answered())
}

// exceeded says that instances carry less than was calculated, and why there are not more of them.
func (s *Situation) exceeded() string {
	text := fmt.Sprintf("instances should carry %s/s, but miss at a load of %s/s", Rate(s.Carries), Rate(s.Load))
	if lack := s.lack(present); lack != "" {
		text += ", and " + lack
		if s.Lack == NoRoom {
			text += " for more"
		}
	}
	return text
}

// lately begins a reason that is not known.
const lately = "in the last minute"

// tense is that of a verb.
type tense bool

const present, past tense = false, true

func (t tense) of(now, then string) string {
	if t == past {
		return then
	}
	return now
}

// figures compares the load with what the instances carry.
func (s *Situation) figures(t tense) string {
	return fmt.Sprintf("load %s%s/s, instances %s %s/s", t.of("", "was "), Rate(s.Load), t.of("carry", "carried"), Rate(s.Carries))
}

// tooShort says that no config of the model meets the objective.
func (s *Situation) tooShort() string {
	return fmt.Sprintf("the objective is %s, and the shortest that the model can keep is %s", Milliseconds(s.Objective), Milliseconds(s.shortest()))
}

// shortest is the shortest objective that the model can keep, as people would write it.
func (s *Situation) shortest() time.Duration { return Round(max(s.Least, s.Objective+1)) }

// short reports whether no config of the model meets the objective.
func (s *Situation) short() bool {
	return s.Objective > 0 && (s.Lack == TooSlow || s.Least > s.Objective)
}

func (s *Situation) lack(t tense) string {
	switch s.Lack {
	case NoRoom:
		return "no node " + t.of("has", "had") + " room"
	case NoNode:
		return "it may run on no node"
	case AtLimit:
		return fmt.Sprintf("it %s the maximum of %s", t.of("has", "had"), instances(max(s.Max, s.Instances)))
	}
	return ""
}

// starting says how many instances are on their way.
func (s *Situation) starting(t tense) string {
	n := s.Instances - s.Ready - s.Parked
	switch {
	case n == 1:
		return "1 instance " + t.of("starts", "started")
	case n > 1:
		return fmt.Sprintf("%d instances %s", n, t.of("start", "started"))
	}
	return ""
}

// remedy is the one thing that would help.
func (s *Situation) remedy() *Remedy {
	w := s.decisive()
	short := w.kind() == unready || w.kind() == crowded || w == s && s.kind() == unknown && s.goesOn()
	switch {
	case s.short() && s.Least > 0:
		slo := max(s.ample(), s.Roomy)
		return &Remedy{Label: "Allow " + Milliseconds(slo), Objective: slo}
	case short && w.Lack == AtLimit && s.Max > 0:
		n := s.Max + 1
		if w.Carries > 0 && w.Load > w.Carries { // A tenth more than the load, as plans do.
			n = max(n, int(math.Ceil(float64(max(1, w.Instances))*1.1*w.Load/w.Carries)))
		}
		return &Remedy{Label: "Allow " + instances(n), Max: n}
	case short && w.Lack == NoRoom && s.Roomy > s.Objective:
		return &Remedy{Label: "Allow " + Milliseconds(s.Roomy), Objective: s.Roomy}
	}
	return &Remedy{Label: showWhy}
}

// ample is an objective that the model keeps with a margin: a quarter more than the shortest, or a tenth more than was
// seen, but at most twice as much, because what was seen includes waiting. It is rounded up to one of few figures, so that
// it changes seldom.
func (s *Situation) ample() time.Duration {
	least := s.shortest()
	want := max(least*5/4, min(s.Seen*11/10, least*2))
	unit := time.Microsecond
	for unit*100 < want {
		unit *= 10
	}
	for _, n := range []time.Duration{10, 12, 15, 20, 25, 30, 40, 50, 60, 80} {
		if n*unit >= want {
			return n * unit
		}
	}
	return 100 * unit
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
	case strings.HasPrefix(b, lately):
		return a + " " + b
	}
	return a + ": " + b
}
