package peer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func members(n int) (out []Member) {
	for i := range n {
		out = append(out, Member{ID: fmt.Sprintf("provider-7d9f%d", i), URL: fmt.Sprintf("http://10.0.0.%d:8081", i)})
	}
	return out
}

func TestRankSharesFunctionsOut(t *testing.T) {
	const functions, replicas = 3000, 5
	owned := map[string]int{}
	for i := range functions {
		owned[Rank(fmt.Sprintf("f%d.openfaas-fn", i), members(replicas))[0].ID]++
	}
	for id, n := range owned {
		if n < functions/replicas*8/10 || n > functions/replicas*12/10 {
			t.Errorf("%s owns %d of %d functions, want about %d", id, n, functions, functions/replicas)
		}
	}
}

func TestOnlyTheFunctionsOfOneThatGoesMove(t *testing.T) {
	all := members(4)
	for i := range 500 {
		name := fmt.Sprintf("f%d.openfaas-fn", i)
		before := Rank(name, all)
		gone := all[i%4]
		left := slices.DeleteFunc(slices.Clone(all), func(m Member) bool { return m == gone })
		want := slices.DeleteFunc(slices.Clone(before), func(m Member) bool { return m == gone })
		if got := Rank(name, left); !slices.Equal(got, want) {
			t.Errorf("%s: without %s the ranking is %v, want %v", name, gone.ID, got, want)
		}
	}
}

func FuzzRank(f *testing.F) {
	f.Add("f.openfaas-fn", "a b c", uint8(1))
	f.Add("", "", uint8(0))
	f.Add("x", "same same other", uint8(2))
	f.Fuzz(func(t *testing.T, name, ids string, turn uint8) {
		var all []Member
		for _, id := range strings.Split(ids, " ") {
			all = append(all, Member{ID: id})
		}
		got := Rank(name, all)
		k := int(turn) % len(all)
		if turned := Rank(name, slices.Concat(all[k:], all[:k])); !slices.Equal(turned, got) {
			t.Errorf("the order of the members counts: %v and %v", got, turned)
		}
		seen := map[string]bool{}
		for _, m := range got {
			if seen[m.ID] {
				t.Errorf("%q is ranked twice", m.ID)
			}
			seen[m.ID] = true
		}
		for _, m := range all {
			if !seen[m.ID] {
				t.Errorf("%q is not ranked", m.ID)
			}
		}
	})
}

// A function has one owner among the replicas, and another one if that is out of reach.
func TestOwns(t *testing.T) {
	where, all := several(t, 3)
	owner := where.owner(all)
	for _, o := range all {
		if got := Owns(o.Group, name); got != (o == owner) {
			t.Errorf("%s owns it: %v", o.own.id, got)
		}
	}
	ranked := Rank(name, where.members())
	for _, o := range all {
		o.outOfReach(ranked[0], errNoAnswer)
		if o.own.id == ranked[1].ID && !Owns(o.Group, name) {
			t.Error("the second one does not own it while the first is out of reach")
		}
		if o.own.id == ranked[2].ID && Owns(o.Group, name) {
			t.Error("the third one owns it, too")
		}
	}
}
