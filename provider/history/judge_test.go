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
		"the only one failed": {with(func(s *Situation) { s.Minute = Counts{Arrived: 1, Failed: 1} }), OK,
			"the only request has failed", Remedy{}},
		"the only one was late": {with(func(s *Situation) { s.Minute = Counts{Arrived: 1, Late: 1} }), OK, "the only request was late", Remedy{}},
		"a cold start": {with(func(s *Situation) { s.Minute, s.Cold = Counts{Arrived: 1, Late: 1}, true }), OK,
			"one request waited for the first instance", Remedy{}},
		"two of a cold start": {with(func(s *Situation) { s.Minute, s.Cold = Counts{Arrived: 2, Late: 2}, true }), OK,
			"two requests waited for the first instance", Remedy{}},
		"two of two": {with(func(s *Situation) { s.Minute = Counts{Arrived: 2, Late: 1, Failed: 1} }), OK,
			"of two requests, none was answered in time: 50 % late, 50 % failed", Remedy{}},
		"nine of many are chance": {with(func(s *Situation) { s.Minute = Counts{Arrived: 100, InTime: 91, Late: 9} }), OK, "", Remedy{}},
		"three of three failed": {with(func(s *Situation) { s.Minute = Counts{Arrived: 3, Failed: 3} }), Misses,
			"100 % failed: instances answer with errors", Remedy{Label: showWhy}},
		"nothing fits": {with(func(s *Situation) { s.Minute, s.WrongCode = Counts{Arrived: 12, Wrong: 12}, 400 }), OK,
			"all 12 requests were refused as wrong (400): the client's request does not fit the model", Remedy{}},
		"nothing fits for several reasons": {Situation{Minute: Counts{Arrived: 12, Wrong: 12}, Instances: 1, Ready: 1}, OK,
			"all 12 requests were refused as wrong (4xx): the client's request does not fit the function", Remedy{}},
		"something fits": {with(func(s *Situation) { s.Minute, s.WrongCode = Counts{Arrived: 12, InTime: 1, Wrong: 11}, 400 }), OK, "", Remedy{}},
		"no room for more than the load": {with(func(s *Situation) { s.Minute, s.Load, s.Carries, s.Lack, s.Roomy = refused, 303, 3452, NoRoom, 400*ms }),
			Misses, "24 % refused in the last minute; now load 303/s, instances carry 3452/s", Remedy{Label: showWhy}},
		"no room some seconds ago": {with(func(s *Situation) {
			s.Minute, s.Roomy, s.Worst = refused, 400*ms, &Situation{Objective: 200 * ms, Load: 480, Carries: 90, Instances: 2, Ready: 2, Lack: NoRoom}
		}), Misses, "24 % refused: load was 480/s, instances carried 90/s, no node had room; now load 100/s, instances carry 150/s",
			Remedy{"Allow 400 ms", 400 * ms, 0}},
		"misses go on": {with(func(s *Situation) {
			s.Minute, s.Recent, s.Load, s.Carries = refused, Counts{Arrived: 100, InTime: 95, Refused: 5}, 303, 3452
		}), Misses, "24 % refused in the last minute, and still now: instances should carry 3452/s, but miss at a load of 303/s",
			Remedy{Label: showWhy}},
		"misses go on after a lack of room": {with(func(s *Situation) {
			s.Minute, s.Recent, s.Load, s.Carries, s.Lack, s.Roomy = refused, Counts{Arrived: 100, InTime: 95, Refused: 5}, 303, 3452, NoRoom, 400*ms
			s.Worst = &Situation{Objective: 200 * ms, Load: 480, Carries: 90, Instances: 2, Ready: 2, Lack: NoRoom}
		}), Misses, "24 % refused in the last minute, and still now: instances should carry 3452/s, but miss at a load of 303/s, " +
			"and no node has room for more", Remedy{"Allow 400 ms", 400 * ms, 0}},
		"misses are over": {with(func(s *Situation) {
			s.Minute, s.Recent, s.Load, s.Carries, s.Lack = refused, Counts{Arrived: 1000, InTime: 999, Late: 1}, 303, 3452, NoRoom
		}), Misses, "24 % refused in the last minute; now load 303/s, instances carry 3452/s", Remedy{Label: showWhy}},
		"no room then and now": {with(func(s *Situation) {
			s.Minute, s.Load, s.Lack, s.Worst = refused, 160, NoRoom, &Situation{Objective: 200 * ms, Load: 480, Carries: 90, Instances: 2, Ready: 2, Lack: NoRoom}
		}), Misses, "24 % refused: load 160/s, instances carry 150/s, no node has room", Remedy{Label: showWhy}},
		"a cold start, and then no room": {with(func(s *Situation) {
			s.Minute, s.Load, s.Carries, s.Lack, s.Roomy, s.Worst = refused, 480, 390, NoRoom, 400*ms, &Situation{Objective: 200 * ms, Load: 480}
		}), Misses, "24 % refused: load 480/s, instances carry 390/s, no node has room", Remedy{"Allow 400 ms", 400 * ms, 0}},
		"more started, and then the limit": {with(func(s *Situation) {
			s.Minute, s.Load, s.Carries, s.Lack, s.Max = refused, 480, 240, AtLimit, 2
			s.Worst = &Situation{Objective: 200 * ms, Load: 480, Carries: 90, Instances: 2, Ready: 1}
		}), Misses, "24 % refused: load 480/s, instances carry 240/s, it has the maximum of 2 instances", Remedy{"Allow 5 instances", 0, 5}},
		"the first instance came late": {with(func(s *Situation) {
			s.Minute, s.Worst = refused, &Situation{Objective: 200 * ms, Load: 480}
		}), Misses, "24 % refused: no instance was ready; now load 100/s, instances carry 150/s", Remedy{Label: showWhy}},
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
			"24 % refused in the last minute; now load 100/s, instances carry 150/s", Remedy{Label: showWhy}},
		"too short an objective": {with(func(s *Situation) {
			s.Minute, s.Objective, s.Least, s.Lack = Counts{Arrived: 100, Late: 100}, 100*ms, 183*ms, TooSlow
		}), Misses, "100 % late: the objective is 100 ms, and the shortest that the model can keep is 190 ms", Remedy{"Allow 250 ms", 250 * ms, 0}},
		"too short, and the load needs a longer one": {with(func(s *Situation) {
			s.Minute, s.Objective, s.Least, s.Lack, s.Roomy = Counts{Arrived: 100, Late: 100}, 100*ms, 183*ms, TooSlow, 360*ms
		}), Misses, "100 % late: the objective is 100 ms, and the shortest that the model can keep is 190 ms", Remedy{"Allow 360 ms", 360 * ms, 0}},
		"too short, seen to be shorter still": {with(func(s *Situation) {
			s.Minute, s.Objective, s.Least, s.Lack, s.Seen = Counts{Arrived: 100, Late: 100}, 4*ms, 4501925, TooSlow, 9*ms
		}), Misses, "100 % late: the objective is 4 ms, and the shortest that the model can keep is 4.6 ms", Remedy{"Allow 10 ms", 10 * ms, 0}},
		"too short, with a queue": {with(func(s *Situation) {
			s.Minute, s.Objective, s.Least, s.Lack, s.Seen = Counts{Arrived: 100, Late: 100}, 7*ms, 7385*time.Microsecond, TooSlow, time.Second
		}), Misses, "100 % late: the objective is 7 ms, and the shortest that the model can keep is 7.4 ms", Remedy{"Allow 15 ms", 15 * ms, 0}},
		"too short and nothing served": {with(func(s *Situation) {
			s.Minute, s.Objective, s.Least, s.Lack, s.Ready, s.Instances = Counts{}, 100*ms, 183*ms, TooSlow, 0, 0
			s.Problem = "no config meets the objective"
		}), Broken, "the objective is 100 ms, and the shortest that the model can keep is 190 ms", Remedy{"Allow 250 ms", 250 * ms, 0}},
		"slower than predicted": {with(func(s *Situation) { s.Minute, s.Slower = Counts{Arrived: 100, InTime: 50, Late: 50}, 1.5 }), Misses,
			"50 % late: executions take 1.5 times as long as predicted", Remedy{Label: showWhy}},
		"late and refused": {with(func(s *Situation) { s.Minute, s.Slower = Counts{Arrived: 100, InTime: 50, Late: 40, Refused: 10}, 2 }), Misses,
			"10 % refused, 40 % late: executions take 2 times as long as predicted", Remedy{Label: showWhy}},
		"few misses": {with(func(s *Situation) { s.Minute, s.Percentile = Counts{Arrived: 20000, InTime: 19990, Late: 10}, 99.99 }), Misses,
			"< 0.1 % late in the last minute; now load 100/s, instances carry 150/s", Remedy{Label: showWhy}},
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

// While a function misses its objective, its sentence and its remedy are those of the worst second, and change seldom.
func TestSentencesAreSteady(t *testing.T) {
	const ms = time.Millisecond
	var m Memory
	s := Situation{Objective: 4 * ms, Percentile: 99, Load: 100, Carries: 150, Instances: 2, Ready: 2, Least: 4500 * time.Microsecond, Lack: TooSlow,
		Minute: Counts{Arrived: 100, Late: 100}}
	first := m.Judge(1000, s)
	if first.Remedy == nil || first.Remedy.Objective != 6*ms {
		t.Fatalf("%+v %+v", first, first.Remedy)
	}
	for at := int64(1001); at < 1030; at++ {
		s.Least, s.Lack, s.Seen = time.Duration(3500+100*(at%20))*time.Microsecond, []Lack{TooSlow, NoRoom, NoLack}[at%3], time.Duration(at%9)*ms
		if v := m.Judge(at, s); v.Sentence != first.Sentence || v.Remedy == nil || *v.Remedy != *first.Remedy {
			t.Fatalf("at %d: %+v %+v, first %+v %+v", at, v, v.Remedy, first, first.Remedy)
		}
	}
	s.Least, s.Lack, s.Seen = 7385*time.Microsecond, TooSlow, 0
	if v := m.Judge(1030, s); v.Remedy == nil || v.Remedy.Label != "Allow 10 ms" {
		t.Errorf("after a while: %+v %+v", v, v.Remedy)
	}

	m, s.Objective, s.Least, s.Minute = Memory{}, 200*ms, 20*ms, Counts{Arrived: 1000, InTime: 760, Refused: 240}
	crowd := s
	crowd.Load, crowd.Carries, crowd.Lack = 480, 90, NoRoom
	m.Note(2000, 200, crowd)
	s.Lack = NoLack
	m.Note(2001, 40, s)
	want := "24 % refused: load was 480/s, instances carried 90/s, no node had room; now load 100/s, instances carry 150/s"
	for i := range 3 {
		s.Lack = []Lack{NoRoom, NoLack, AtLimit}[i]
		if v := m.Judge(2010, s); v.Sentence != want {
			t.Errorf("%d: %q, want %q", i, v.Sentence, want)
		}
	}
	m.Note(2060, 10, s)
	if v := m.Judge(2060, s); strings.Contains(v.Sentence, "480") {
		t.Errorf("a minute later: %q", v.Sentence)
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
