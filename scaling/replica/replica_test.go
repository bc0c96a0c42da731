package replica

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// caller makes load for one function and prints changes of the number of replicas.
type caller struct {
	replicas *Scaler
	settings Settings
	now      time.Time
	// sent are the requests since the beginning; a part of one is not sent yet.
	sent float64
}

const look = 100 * time.Millisecond

var (
	rewrite = flag.Bool("rewrite", false, "write what the scenarios print into testdata")
	epoch   = time.Unix(1_000_000, 0).UTC()
)

func (c *caller) load(inFlight, waiting int) Load {
	return Load{Arrivals: uint64(c.sent), InFlight: inFlight, Waiting: waiting}
}

// arguments are a command's key=value pairs.
type arguments struct {
	t      *testing.T
	line   string
	values map[string]string
}

func (a arguments) int(key string, otherwise int) int {
	n, err := strconv.Atoi(cmp.Or(a.values[key], strconv.Itoa(otherwise)))
	if err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return n
}

func (a arguments) duration(key string, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(cmp.Or(a.values[key], otherwise.String()))
	if err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return d
}

// do carries out one line of a script:
//
//	function min=1 max=20 target=5 type=rps|capacity zero=DURATION replicas=1
//	configure …                       (the same keys, for a function that is there)
//	rate 10 for 20s                   (requests/s, evenly)
//	busy 3 for 20s                    (in flight all the time)
//	waiting 1 for 1s
//	set 2
//	resume 4
func (c *caller) do(t *testing.T, line string) string {
	words := strings.Fields(line)
	keys := arguments{t, line, map[string]string{}}
	for _, word := range words[1:] {
		if k, v, ok := strings.Cut(word, "="); ok {
			keys.values[k] = v
		}
	}
	number := func() float64 {
		n, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return n
	}
	switch words[0] {
	case "function", "configure":
		c.configure(keys)
		if words[0] == "configure" {
			c.replicas.Configure(c.settings)
		} else {
			*c = caller{settings: c.settings, now: epoch, replicas: New(epoch, c.settings, keys.int("replicas", max(c.settings.Min, 0)))}
		}
		return fmt.Sprintf("%d\n", c.replicas.Wanted())
	case "set":
		c.replicas.Set(c.now, int(number()), c.load(0, 0))
		return fmt.Sprintf("%d\n", c.replicas.Wanted())
	case "resume":
		c.replicas.Resume(c.now, int(number()))
		return fmt.Sprintf("%d\n", c.replicas.Wanted())
	case "rate", "busy", "waiting":
		d, err := time.ParseDuration(words[3])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return c.run(words[0], number(), d)
	}
	t.Fatalf("unknown command: %s", line)
	return ""
}

func (c *caller) configure(keys arguments) {
	s := Settings{Min: keys.int("min", 1), Max: keys.int("max", 20), Target: float64(keys.int("target", 5))}
	if keys.values["type"] == "capacity" {
		s.Type = ByCapacity
	}
	s.ZeroAfter = keys.duration("zero", 0)
	s.Zero = s.ZeroAfter > 0
	s.ZeroAfter = cmp.Or(s.ZeroAfter, 15*time.Minute)
	c.settings = s
}

func (c *caller) run(what string, n float64, d time.Duration) string {
	var out strings.Builder
	for began := c.now; c.now.Sub(began) < d; {
		c.now = c.now.Add(look)
		before := c.replicas.Wanted()
		inFlight, waiting := 0, 0
		switch what {
		case "rate":
			c.sent += n * look.Seconds()
		case "busy":
			inFlight = int(n)
		case "waiting":
			waiting = int(n)
		}
		if after := c.replicas.Next(c.now, c.load(inFlight, waiting)); after != before {
			fmt.Fprintf(&out, "after %v: %d\n", c.now.Sub(began), after)
		}
	}
	return cmp.Or(out.String(), "no change\n")
}

// TestScenarios runs testdata/*.txt, in the form of the engine's scenarios.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c caller
			var out strings.Builder
			for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				commands, want, _ := strings.Cut(block+"\n", "----\n")
				got := ""
				for line := range strings.Lines(commands) {
					if !strings.HasPrefix(line, "#") {
						got += c.do(t, strings.TrimSpace(line))
					}
				}
				if got != want && !*rewrite {
					t.Errorf("%s: %s\ngot\n%swant\n%s", file, commands, got, want)
				}
				out.WriteString(commands + "----\n" + got + "\n")
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(strings.TrimSuffix(out.String(), "\n")), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The test has the table of Scaler's documentation.
func TestForARate(t *testing.T) {
	for _, c := range []struct {
		rate     float64
		up, down int
	}{{4, 1, 2}, {5.5, 1, 2}, {10, 2, 3}, {100, 20, 22}, {3.5, 1, 1}} {
		n := 10 * c.rate
		up, down := math.Ceil((n-math.Sqrt(n))/50), math.Ceil((n+2*math.Sqrt(n))/50)
		if up != float64(c.up) || down != float64(c.down) {
			t.Errorf("%v/s: up to %v and down to %v, want %d and %d", c.rate, up, down, c.up, c.down)
		}
		for _, begin := range []int{1, 50} {
			r := &caller{now: epoch, replicas: New(epoch, Settings{Min: 1, Target: 5}, 1)}
			r.replicas.Resume(epoch, begin)
			r.run("rate", c.rate, 2*time.Minute)
			if got, want := r.replicas.Wanted(), map[int]int{1: c.up, 50: c.down}[begin]; got < want-1 || got > want {
				t.Errorf("%v/s, from %d: %d replicas, want %d", c.rate, begin, got, want)
			}
		}
	}
}

// Whatever happens, the number is within the bounds, or 0 if that is allowed.
func FuzzAreBounded(f *testing.F) {
	f.Add([]byte{0, 10, 200, 3, 255, 0, 17, 90, 4}, uint8(1), uint8(3), false)
	f.Add([]byte{1, 1, 1, 250, 250, 250, 250}, uint8(0), uint8(0), true)
	f.Fuzz(func(t *testing.T, script []byte, least, most uint8, capacity bool) {
		s := Settings{Min: int(least), Max: int(most), Target: 5, ZeroAfter: time.Minute}
		if most > 0 {
			s.Max = max(s.Max, s.Min)
		}
		if capacity {
			s.Type = ByCapacity
		}
		now, load, zeroed := epoch, Load{}, false
		r := New(now, s, s.Min)
		for i, b := range script {
			now = now.Add(time.Duration(b%97) * 50 * time.Millisecond)
			switch {
			case b == 255:
				r.Set(now, i%7, load)
				zeroed = i%7 == 0
			case b == 254:
				r.Resume(now, i%11)
			default:
				load.Arrivals += uint64(b) * uint64(b) / 16
				load.InFlight, load.Waiting = int(b)/3, int(b)%5/4
			}
			n := r.Next(now, load)
			if n != r.Wanted() {
				t.Fatalf("Next says %d, Wanted %d", n, r.Wanted())
			}
			if n == 0 {
				if s.Min > 0 && !zeroed {
					t.Fatalf("step %d: no replica, although at least %d are asked for", i, s.Min)
				}
				continue
			}
			zeroed = zeroed && n == 0
			if n < max(1, s.Min) || s.Max > 0 && n > s.Max {
				t.Fatalf("step %d: %d replicas, not within %d to %d", i, n, s.Min, s.Max)
			}
		}
	})
}

// More load never means fewer replicas.
func FuzzAreMonotone(f *testing.F) {
	f.Add([]byte{0, 10, 200, 3, 255, 0, 0, 0, 0, 0, 0, 17, 90, 4}, []byte{1, 0, 9}, false)
	f.Add([]byte{9, 9, 9, 100, 0, 0, 0, 0, 0, 0, 0}, []byte{0, 0, 30, 0, 0}, true)
	f.Fuzz(func(t *testing.T, script, more []byte, capacity bool) {
		if len(more) == 0 {
			return
		}
		s := Settings{Min: 1, Max: 1000, Target: 5, Zero: true, ZeroAfter: time.Minute}
		if capacity {
			s.Type = ByCapacity
		}
		now := epoch
		low, high := New(now, s, 1), New(now, s, 1)
		var a, b Load
		for i, x := range script {
			now = now.Add(time.Duration(x%31+1) * 100 * time.Millisecond)
			extra := more[i%len(more)]
			a.Arrivals += uint64(x)
			b.Arrivals += uint64(x) + uint64(extra)
			a.InFlight = int(x) / 8
			b.InFlight = int(x)/8 + int(extra)
			if l, h := low.Next(now, a), high.Next(now, b); l > h {
				t.Fatalf("step %d: %d replicas for the lower load, %d for the higher", i, l, h)
			}
		}
	})
}

// Under a constant load whose count in a window varies by at most its root, the number
// settles: it never goes both up and down.
func FuzzDoNotFlap(f *testing.F) {
	f.Add(uint16(100), []byte{0, 255, 3, 77, 128}, uint8(5))
	f.Add(uint16(52), []byte{128, 0, 255}, uint8(1))
	f.Add(uint16(5000), []byte{1, 2, 250}, uint8(20))
	f.Fuzz(func(t *testing.T, tenths uint16, noise []byte, begin uint8) {
		if len(noise) == 0 || tenths == 0 {
			return
		}
		rate := float64(tenths) / 10
		swing := math.Sqrt(10*rate) / 2
		r := New(epoch, Settings{Min: 1, Target: 5}, 1)
		r.Resume(epoch, int(begin))
		ups, downs, sent := 0, 0, 0.0
		for i := range 3000 {
			passed := time.Duration(i) * look
			// How far what was sent is off the line: from 0 to swing.
			off := swing * float64(noise[i/7%len(noise)]) / 255
			sent = max(sent, math.Floor(rate*passed.Seconds()+off))
			before := r.Wanted()
			after := r.Next(epoch.Add(passed), Load{Arrivals: uint64(sent)})
			switch {
			case after > before:
				ups++
			case after < before && passed > 41*time.Second:
				downs++
			}
		}
		if ups > 0 && downs > 0 {
			t.Errorf("at %v/s the number went up %d times and down %d times", rate, ups, downs)
		}
	})
}
