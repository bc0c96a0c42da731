package decisions

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var start = time.Unix(1_790_000_000, 0)

func texts(list []Decision) (out []string) {
	for _, d := range list {
		out = append(out, fmt.Sprint(d.ID, " ", d.Function, ": ", d.Text))
	}
	return out
}

// Decisions that are equal but for measured figures are one entry with a count. Those of one plan add up.
func TestEqualDecisionsAreJoined(t *testing.T) {
	l := NewLog()
	on := func(node string, load float64) Fields {
		return Fields{Instances: 1, Batch: 8, CPU: 1000, Node: node, Instance: fmt.Sprint("i", load), Why: "load", Load: load, Needed: load, Carries: 40}
	}
	l.Add(start, "f.ns", Start, on("n1", 50))
	l.Add(start, "f.ns", Start, on("n2", 50))
	l.Add(start, "f.ns", Start, on("n1", 50))
	found, next := l.Since(0, "ns", "f", 0)
	if len(found) != 2 || next != 3 || found[1].ID != 3 || found[1].Replaces != 1 || !strings.HasPrefix(found[1].Text, "Started 2 instances ⟨8, 1000m⟩ on n1") {
		t.Errorf("within one plan: %q, next %d", texts(found), next)
	}
	for i := range 5 {
		l.Add(start.Add(time.Duration(i)*time.Second), "g.ns", Resize, Fields{Instances: 1, CPU: 1000, FromCPU: 500, Load: float64(i)})
	}
	found, _ = l.Since(next, "", "", 0)
	if len(found) != 1 || found[0].Count != 5 || !found[0].FirstAt.Equal(start) || found[0].Replaces != 7 || !strings.HasSuffix(found[0].Text, "(×5)") {
		t.Errorf("in a row: %+v", found)
	}
	l.Add(start.Add(4*time.Second+joinWithin+1), "g.ns", Resize, Fields{Instances: 1, CPU: 1000, FromCPU: 500})
	l.Add(start.Add(5*time.Second+joinWithin), "g.ns", Resize, Fields{Instances: 1, CPU: 2000, FromCPU: 500})
	if found, _ = l.Since(0, "ns", "g", 0); len(found) != 3 {
		t.Errorf("later, or others: %q", texts(found))
	}
}

// IDs ascend, and a reader that continues with next misses nothing. After a restart its ID counts as 0.
func TestSince(t *testing.T) {
	l := NewLog()
	for i := range 10 {
		l.Add(start, fmt.Sprintf("f%d.%s", i, []string{"a", "b"}[i%2]), Deploy, Fields{Revision: uint64(i)})
	}
	l.Add(start, "", Node, Fields{Wanted: 1})
	for _, c := range []struct {
		id                  uint64
		namespace, function string
		limit, want         int
	}{
		{0, "", "", 0, 11}, {4, "", "", 0, 7}, {0, "a", "", 0, 5}, {0, "", "f3", 0, 1}, {0, "b", "f3", 0, 1}, {0, "a", "f3", 0, 0},
		{3, "a", "", 0, 3}, {0, "", "", 3, 3}, {11, "", "", 0, 0}, {500, "", "", 0, 11},
	} {
		found, next := l.Since(c.id, c.namespace, c.function, c.limit)
		if len(found) != c.want || next != 11 {
			t.Errorf("%+v: %q, next %d", c, texts(found), next)
		}
		for i := 1; i < len(found); i++ {
			if found[i].ID <= found[i-1].ID {
				t.Errorf("%+v: IDs do not ascend: %q", c, texts(found))
			}
		}
	}
	changed := l.Changed()
	select {
	case <-changed:
		t.Error("changed before the next entry")
	default:
	}
	l.Add(start, "f.a", Delete, Fields{})
	<-changed
	var none *Log
	none.Add(start, "f", Delete, Fields{})
	if found, next := none.Since(0, "", "", 0); found != nil || next != 0 || none.Changed() != nil {
		t.Error("a nil log remembers")
	}
}

// A function with many decisions pushes out its own first, and all together are bounded.
func TestLogIsBounded(t *testing.T) {
	l := NewLog()
	l.Add(start, "calm.ns", Deploy, Fields{})
	for i := range maxPerFunction + 50 {
		l.Add(start, "busy.ns", Deploy, Fields{Revision: uint64(i)})
	}
	if found, _ := l.Since(0, "ns", "busy", 0); len(found) != maxPerFunction || found[0].Fields.Revision != 50 {
		t.Errorf("%d of one function, from %d", len(found), found[0].Fields.Revision)
	}
	if found, _ := l.Since(0, "ns", "calm", 0); len(found) != 1 {
		t.Error("another function's decision is gone")
	}
	for i := range maxDecisions {
		l.Add(start, fmt.Sprintf("f%d.ns", i), Deploy, Fields{})
	}
	if found, _ := l.Since(0, "", "", 0); len(found) != maxDecisions || len(l.byFunction) != maxDecisions {
		t.Errorf("%d in all, %d functions", len(found), len(l.byFunction))
	}
}

// Texts of models and clients are bounded and have no control characters.
func TestTextsAreClipped(t *testing.T) {
	l := NewLog()
	l.Add(start, "f.ns", Problem, Fields{Detail: "a\x1b[2J\x00\xff<b>" + strings.Repeat("ä", maxText)})
	found, _ := l.Since(0, "", "", 0)
	text := found[0].Text
	if strings.ContainsAny(text, "\x1b\x00\n") || !utf8.ValidString(text) || len(text) > maxText+20 || !strings.Contains(text, "<b>") {
		t.Errorf("%q", text[:60])
	}
}

func TestTimeInJSON(t *testing.T) {
	text, err := json.Marshal(Time{start.Add(123 * time.Millisecond)})
	var back Time
	if err = json.Unmarshal(text, &back); err != nil || string(text) != "1790000000.123" || !back.Equal(start.Add(123*time.Millisecond)) {
		t.Errorf("%s, %v, %v", text, back, err)
	}
}

// A problem is told once it lasts, in spite of other figures, and solved once it is gone for a while.
func TestProblems(t *testing.T) {
	l, p, at := NewLog(), Problems{}, start
	for _, problem := range []string{"", "moment", "", "lasts 1", "lasts 2", "lasts 3", "", "lasts 4", "other", "other", "other", "", "", "", "", ""} {
		at = at.Add(time.Second)
		p.Look(l, at, "f.ns", func() string { return problem })
		p.Look(l, at.Add(time.Millisecond), "f.ns", func() string { t.Error("asked again at once"); return "" })
	}
	found, _ := l.Since(0, "", "", 0)
	got := strings.Join(texts(found), "\n")
	want := "1 f: Problem: lasts 2.\n2 f: Solved after 5 s: lasts 2.\n3 f: Problem: other.\n4 f: Solved after 3 s: other."
	if got != want {
		t.Errorf("%s", got)
	}
}

// What another log has decided is added once, under IDs of this one, and is none of its own.
func TestMerge(t *testing.T) {
	leader, follower := NewLog(), NewLog()
	follower.Add(start, "g.ns", Deploy, Fields{Image: "g"})
	next := uint64(0)
	merge := func() {
		var own []Decision
		own, next = leader.Own(next, 100)
		follower.Merge("leader", own)
		follower.Merge("leader", own)
	}
	for i := range 3 {
		leader.Add(start.Add(time.Duration(i)*time.Second), "f.ns", Start, Fields{Instances: 1, Node: "n"})
		merge()
	}
	leader.Merge("follower", first(follower.Own(0, 100)))
	merge()
	found, _ := follower.Since(0, "", "", 0)
	if got := strings.Join(texts(found), "; "); got != "1 g: Deployed image g as revision 0.; 4 f: Started an instance on n. (×3)" || found[1].Replaces != 3 {
		t.Errorf("%s, %+v", got, found)
	}
	if found, _ := leader.Since(0, "ns", "g", 0); len(found) != 1 {
		t.Errorf("the leader knows of g: %q", texts(found))
	}
}

func first(found []Decision, _ uint64) []Decision { return found }

// What is decided about instances that functions share is about each of them, also once one has left.
func TestShared(t *testing.T) {
	l := NewLog()
	at := start
	add := func(function string, kind Kind) {
		at = at.Add(time.Second)
		l.Add(at, function, kind, Fields{Instances: 1})
	}
	add("a.ns", Deploy)
	add("pool.ns", Start)
	l.Share("pool.ns", []string{"b.ns", "a.ns"})
	add("pool.ns", Start)
	add("b.ns", Deploy)
	l.Share("pool.ns", []string{"a.ns", "b.ns", "c.other", "d.ns", "e.ns", "f.ns"})
	add("pool.ns", Start)
	add("pool.ns", Start)
	add("away.ns", Stop)
	l.Share("pool.ns", nil)
	add("pool.ns", Stop)
	for _, c := range []struct {
		namespace, function string
		limit               int
		want                string
	}{
		{"ns", "a", 0, "1 a, 3 pool, 6 pool"}, {"ns", "a", 2, "3 pool, 6 pool"}, {"ns", "b", 0, "3 pool, 4 b, 6 pool"},
		{"other", "c", 0, "6 pool"}, {"other", "", 0, "6 pool"}, {"", "b", 0, "3 pool, 4 b, 6 pool"}, {"other", "a", 0, ""},
		{"ns", "pool", 0, "2 pool, 3 pool, 6 pool, 8 pool"}, {"ns", "pool", 1, "8 pool"},
	} {
		found, _ := l.Since(0, c.namespace, c.function, c.limit)
		var got []string
		for _, d := range found {
			got = append(got, fmt.Sprintf("%d %s", d.ID, d.Function))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for i, want := range map[int]string{
		1: "Started an instance.", 2: "Started an instance. Shared by a, b.",
		4: "Started an instance. Shared by a, b, c.other, d and 2 more. (×2)", 6: "Stopped an instance.",
	} {
		found, _ := l.Since(0, "", "", 0)
		if found[i].Text != want {
			t.Errorf("%d: %q, want %q", i, found[i].Text, want)
		}
	}
	own, _ := l.Own(0, 100)
	restored := NewLog()
	restored.Restore(own)
	if found, _ := restored.Since(0, "ns", "b", 0); len(found) != 3 {
		t.Errorf("restored: %q", texts(found))
	}
	for i := range maxPerFunction + 1 {
		l.Add(at, "pool.ns", Deploy, Fields{Revision: uint64(i)})
	}
	if found, _ := l.Since(0, "ns", "b", 0); len(found) != 1 {
		t.Errorf("later: %q", texts(found))
	}
}
