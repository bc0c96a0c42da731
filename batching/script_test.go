package batching

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

var rewrite = flag.Bool("rewrite", false, "write what the policies do into testdata")

// epoch is time 0 of every script and simulation.
var epoch = time.Unix(1_000_000, 0)

func ms(f float64) time.Duration { return time.Duration(f * float64(time.Millisecond)) }

// TestScripts runs testdata/*.txt. A line is a command with its time in ms:
//
//	policy NAME slo=MS [max=B]
//	MS up ID b=B exec=T1,T2,…,TB [rate=R] [timeout=MS] [classes=C1,C2,…] [of=ELEMENTS]
//	MS down ID
//	MS add FIRST[-LAST] due=MS [class=C] [within=MS] [elements=N]
//	MS cancel N
//	MS done ID
//	MS tick
//
// After each command, what the policy does stands behind ">" and, where it
// waits for something, when it wants to be asked again.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if *rewrite {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s does otherwise now; it prints\n%s", name, got)
			}
		})
	}
}

func runScript(t *testing.T, text string) string {
	var out strings.Builder
	var p Policy
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := s.Text()
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if words[0] == "policy" {
			o := arguments(t, words[2:])
			var err error
			if p, err = New(words[1], Options{SLO: ms(o.number("slo")), MaxBatch: int(o.number("max"))}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		at, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		now := epoch.Add(ms(at))
		command(t, p, now, words[1:])
		describe(&out, p, now)
	}
	return out.String()
}

func command(t *testing.T, p Policy, now time.Time, words []string) {
	switch words[0] {
	case "tick":
	case "up":
		o := arguments(t, words[2:])
		in := Instance{ID: cluster.InstanceID(words[1]), Config: cluster.Config{Batch: int(o.number("b"))}, Rate: o.number("rate"), Timeout: ms(o.number("timeout"))}
		for _, x := range strings.Split(o["exec"], ",") {
			f, _ := strconv.ParseFloat(x, 64)
			in.Exec = append(in.Exec, ms(f))
		}
		if o["classes"] != "" {
			for _, x := range strings.Split(o["classes"], ",") {
				c, _ := strconv.Atoi(x)
				in.Classes |= 1 << c
			}
		}
		if of := o.number("of"); of > 0 {
			in.Sizes = proportional(of)
		}
		p.Up(now, in)
	case "down":
		p.Down(now, cluster.InstanceID(words[1]))
	case "done":
		p.Done(now, cluster.InstanceID(words[1]))
	case "add":
		o := arguments(t, words[2:])
		r := Request{Deadline: epoch.Add(ms(o.number("due"))), Class: uint8(o.number("class")), Within: ms(o.number("within")), Elements: int64(o.number("elements"))}
		first, last, ranged := strings.Cut(words[1], "-")
		from, _ := strconv.Atoi(first)
		to := from
		if ranged {
			to, _ = strconv.Atoi(last)
		}
		for id := from; id <= to; id++ {
			r.ID = RequestID(id)
			p.Add(now, r)
		}
	case "cancel":
		id, _ := strconv.Atoi(words[1])
		p.Cancel(now, RequestID(id))
	default:
		t.Fatalf("unknown command %q", words[0])
	}
}

// proportional are times that grow with the size of the rows; Exec is of rows with so many elements.
type proportional float64

func (p proportional) Factor(_ int, elements int64) float64 { return float64(elements) / float64(p) }

func describe(out *strings.Builder, p Policy, now time.Time) {
	for _, a := range p.Actions(now) {
		if a.Dispatch == nil {
			fmt.Fprintf(out, "> reject %d\n", a.Reject)
			continue
		}
		fmt.Fprintf(out, "> %s executes %v\n", a.Instance, a.Dispatch)
	}
	if at, ok := p.Next(); ok {
		fmt.Fprintf(out, "> %d wait, ask at %.3f\n", p.Waiting(), float64(at.Sub(epoch))/float64(time.Millisecond))
	}
}

type scriptArguments map[string]string

func arguments(t *testing.T, words []string) scriptArguments {
	t.Helper()
	out := scriptArguments{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			t.Fatalf("%q is not KEY=VALUE", w)
		}
		out[k] = v
	}
	return out
}

func (a scriptArguments) number(key string) float64 {
	f, _ := strconv.ParseFloat(a[key], 64)
	return f
}
