package history

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const ms = time.Millisecond
	all := func(n uint64) Counts { return Counts{Arrived: n, InTime: n} }
	serving := Situation{Objective: 200 * ms, Percentile: 99, Load: 100, Carries: 150, Instances: 2, Ready: 2, Least: 20 * ms, Minute: all(6000)}
	with := func(edit func(s *Situation)) Situation {
		s := serving
		edit(&s)
		return s
	}
	refused := Counts{Arrived: 1000, InTime: 760, Refused: 240}
	for name, x := range map[string]struct {
		s        Situation
		state    State
		sentence string
		remedy   Remedy
	}{
		"all well":         {serving, OK, "", Remedy{}},
		"nothing deployed": {Situation{}, Idle, "", Remedy{}},
		"nobody asks":      {with(func(s *Situation) { s.Minute, s.Load = Counts{}, 0 }), OK, "", Remedy{}},
		"parked":           {with(func(s *Situation) { s.Minute, s.Ready, s.Parked = Counts{}, 0, 2 }), OK, "", Remedy{}},
		"stopped":          {Situation{Minute: Counts{Arrived: 5, InTime: 5}}, Idle, "", Remedy{}},
		"within the percentile": {with(func(s *Situation) { s.Minute = Counts{Arrived: 1000, InTime: 990, Late: 10} }),
			OK, "", Remedy{}},
		"one late of five is chance": {with(func(s *Situation) { s.Minute = Counts{Arrived: 5, InTime: 4, Late: 1} }), OK, "", Remedy{}},
		"the only one failed": {with(func(s *Situation) { s.Minute = Counts{Arrived: 1, Failed: 1} }), Misses,
			"100 % failed: instances answer with errors", Remedy{Label: showWhy}},
		"no room, whatever the objective": {with(func(s *Situation) { s.Minute, s.Load, s.Carries, s.Lack = refused, 480, 390, NoRoom }), Misses,
			"24 % refused: load 480/s, instances carry 390/s, no node has room", Remedy{Label: showWhy}},
		"no room": {with(func(s *Situation) { s.Minute, s.Load, s.Carries, s.Lack, s.Roomy = refused, 480, 390, NoRoom, 400*ms }), Misses,
			"24 % refused: load 480/s, instances carry 390/s, no node has room", Remedy{"Allow 400 ms", 400 * ms, 0}},
		"no room for the first": {with(func(s *Situation) {
			s.Minute, s.Load, s.Carries, s.Lack, s.Ready, s.Instances = refused, 480, 0, NoRoom, 0, 0
		}), Misses, "24 % refused: no instance is ready, no node has room", Remedy{Label: showWhy}},
		"at the limit": {with(func(s *Situation) { s.Minute, s.Load, s.Carries, s.Lack, s.Max = refused, 480, 240, AtLimit, 2 }), Misses,
			"24 % refused: load 480/s, instances carry 240/s, it has the maximum of 2 instances", Remedy{"Allow 5 instances", 0, 5}},
		"no node suits": {with(func(s *Situation) { s.Minute, s.Load, s.Carries, s.Lack = refused, 480, 240, NoNode }), Misses,
			"24 % refused: load 480/s, instances carry 240/s, it may run on no node", Remedy{Label: showWhy}},
		"more start": {with(func(s *Situation) { s.Minute, s.Load, s.Carries, s.Instances = refused, 480, 490, 5 }), Misses,
			"24 % refused: load 480/s, 3 instances start", Remedy{Label: showWhy}},
		"one more starts": {with(func(s *Situation) { s.Minute, s.Load, s.Carries, s.Instances = refused, 480, 300, 3 }), Misses,
			"24 % refused: load 480/s, instances carry 300/s, 1 instance starts", Remedy{Label: showWhy}},
		"caught up": {with(func(s *Situation) { s.Minute = refused }), Misses,
			"24 % refused: load 100/s, instances carry 150/s now", Remedy{Label: showWhy}},
		"too short an objective": {with(func(s *Situation) {
			s.Minute, s.Objective, s.Least, s.Lack = Counts{Arrived: 100, Late: 100}, 100*ms, 183*ms, TooSlow
		}), Misses, "100 % late: the objective is 100 ms, and the shortest that the model can keep is 183 ms", Remedy{"Allow 190 ms", 190 * ms, 0}},
		"too short and nothing served": {with(func(s *Situation) {
			s.Minute, s.Objective, s.Least, s.Lack, s.Ready, s.Instances = Counts{}, 100*ms, 183*ms, TooSlow, 0, 0
			s.Problem = "no config meets the objective"
		}), Broken, "no config meets the objective", Remedy{"Allow 190 ms", 190 * ms, 0}},
		"slower than predicted": {with(func(s *Situation) { s.Minute, s.Slower = Counts{Arrived: 100, InTime: 50, Late: 50}, 1.5 }), Misses,
			"50 % late: executions take 1.5 times as long as predicted", Remedy{Label: showWhy}},
		"late and refused": {with(func(s *Situation) { s.Minute, s.Slower = Counts{Arrived: 100, InTime: 50, Late: 40, Refused: 10}, 2 }), Misses,
			"10 % refused, 40 % late: executions take 2 times as long as predicted", Remedy{Label: showWhy}},
		"few misses": {with(func(s *Situation) { s.Minute, s.Percentile = Counts{Arrived: 4000, InTime: 3998, Late: 2}, 99.99 }), Misses,
			"< 0.1 % late: load 100/s, instances carry 150/s now", Remedy{Label: showWhy}},
		"first start":                    {Situation{Instances: 1, Waiting: 1, Minute: Counts{Arrived: 1}}, Starting, "the first instance starts; 1 request waits", Remedy{}},
		"first start, two":               {Situation{Instances: 2, Waiting: 7}, Starting, "the first instance starts; 7 requests wait", Remedy{}},
		"prewarmed":                      {Situation{Instances: 1}, Starting, "the first instance starts", Remedy{}},
		"a new model":                    {Situation{Progress: "the model is being read"}, Starting, "the model is being read", Remedy{}},
		"crashes":                        {Situation{Problem: "the instances exit:\n  no such file", Instances: 1}, Broken, "the instances exit: no such file", Remedy{Label: showWhy}},
		"hopeless, although one is left": {Situation{Problem: "it is gone", Hopeless: true, Ready: 1, Instances: 1}, Broken, "it is gone", Remedy{Label: showWhy}},
		"hopeless without a reason":      {Situation{Hopeless: true}, Broken, "no instance can serve", Remedy{Label: showWhy}},
		"a problem that keeps nobody": {with(func(s *Situation) { s.Problem, s.Slight = "the previous deployment is served: bad image", true }), OK,
			"the previous deployment is served: bad image", Remedy{Label: showWhy}},
		"a problem at rest": {Situation{Problem: "the model takes one request an execution", Slight: true}, Idle, "the model takes one request an execution", Remedy{Label: showWhy}},
		"a program that fails": {Situation{Minute: Counts{Arrived: 10, InTime: 5, Failed: 5}, Instances: 1, Ready: 1}, Misses,
			"50 % failed: instances answer with errors", Remedy{Label: showWhy}},
		"a program without room": {Situation{Minute: Counts{Arrived: 10, InTime: 5, Refused: 5}, Instances: 1, Ready: 1, Lack: NoRoom}, Misses,
			"50 % refused: no node has room", Remedy{Label: showWhy}},
	} {
		v := Judge(x.s)
		if v.State != x.state || v.Sentence != x.sentence || (v.Remedy == nil) != (x.remedy == Remedy{}) || v.Remedy != nil && *v.Remedy != x.remedy {
			t.Errorf("%s: %s %q %+v, want %s %q %+v", name, v.State, v.Sentence, v.Remedy, x.state, x.sentence, x.remedy)
		}
	}
	if v := Judge(Situation{Problem: strings.Repeat("a log with ümläüts\n", 1000)}); len(v.Sentence) > maxSentence+5 || strings.ContainsAny(v.Sentence, "\n\uFFFD") {
		t.Errorf("a long problem: %q", v.Sentence)
	}
}

func TestTexts(t *testing.T) {
	for in, want := range map[float64]string{0: "0 %", 0.01: "< 0.1 %", 1.25: "1.2 %", 24.3: "24 %", 99.6: "> 99 %", 100: "100 %"} {
		if got := Percent(in); got != want {
			t.Errorf("Percent(%g) is %s, want %s", in, got, want)
		}
	}
	for in, want := range map[time.Duration]time.Duration{183 * time.Millisecond: 190 * time.Millisecond, 400 * time.Millisecond: 400 * time.Millisecond,
		99100 * time.Microsecond: 100 * time.Millisecond, 1234 * time.Microsecond: 1300 * time.Microsecond} {
		if got := Round(in); got != want {
			t.Errorf("Round(%v) is %v, want %v", in, got, want)
		}
	}
}
