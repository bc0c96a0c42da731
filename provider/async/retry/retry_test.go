package retry

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	s, err := Parse(map[string]string{Attempts: " 3", MinWait: "10s", MaxWait: "1m", Codes: "429, 503,429", "com.openfaas.scale.min": "x"})
	if err != nil || s.Attempts != 3 || s.MinWait != 10*time.Second || s.MaxWait != time.Minute || !slices.Equal(s.Codes, []int{429, 503}) {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := Parse(nil); err != nil || s.Attempts != 10 {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := Parse(map[string]string{MinWait: "10m"}); err != nil || s.MaxWait != 10*time.Minute {
		t.Errorf("a long min_wait alone: %+v %v", s, err)
	}
	for key, values := range map[string][]string{
		Attempts:                      {"", "0", "-1", "x", "1001", "1.5"},
		MinWait:                       {"", "10", "-1s", "0s", "25h"},
		MaxWait:                       {"x", "500ms"},
		Codes:                         {"", "5xx", "99", "600", "500,", strings.Repeat("9", 100)},
		"com.openfaas.retry.attempst": {"3"},
	} {
		for _, v := range values {
			_, err := Parse(map[string]string{key: v})
			if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s=%q: %v", key, v, err)
			}
			if e, ok := err.(*Error); !ok || e.HTTPStatus() != 400 {
				t.Errorf("%s=%q: %T", key, v, err)
			}
		}
	}
}

func TestAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	s := Settings{Attempts: 3, MinWait: time.Second, MaxWait: 3 * time.Second, Codes: []int{500, 404}}
	for _, c := range []struct {
		try  Try
		want string
	}{
		{Try{Number: 1, Status: 200}, "done"},
		{Try{Number: 1, Status: 302}, "done"},
		{Try{Number: 1, Status: 503}, "done"},
		{Try{Number: 1, Status: 500}, "again at 2026-11-21T00:00:01Z"},
		{Try{Number: 2, Status: 500}, "again at 2026-11-21T00:00:02Z"},
		{Try{Number: 3, Status: 500}, "dead: failed"},
		{Try{Number: 1}, "again at 2026-11-21T00:00:01Z"},
		{Try{Number: 1, Luck: 0.5}, "again at 2026-11-21T00:00:00.875Z"},
		{Try{Number: 1, RetryAfter: 2 * time.Second}, "again at 2026-11-21T00:00:02Z"},
		{Try{Number: 1, RetryAfter: 2 * time.Second, Luck: 0.5}, "again at 2026-11-21T00:00:02.25Z"},
		{Try{Number: 1, RetryAfter: time.Millisecond}, "again at 2026-11-21T00:00:01Z"},
		{Try{Number: 1, RetryAfter: 1 << 62, Luck: 0.99}, "again at 2026-11-21T00:00:03Z"},
		{Try{Number: 3, RetryAfter: time.Second}, "dead: failed"},
		{Try{Number: 3}, "dead: failed"},
		{Try{Number: 9, Status: 200}, "done"},
		{Try{Number: 1, Status: 404}, "again at 2026-11-21T00:00:01Z"},
		{Try{Number: 1, Status: 404, Absent: true}, "dead: no_function"},
		{Try{Number: 1, Malformed: true}, "dead: malformed"},
		{Try{Number: 2, Status: 200, Deaths: MaxDeaths - 1}, "done"},
		{Try{Number: 3, Status: 500, Deaths: MaxDeaths}, "dead: crashed"},
		{Try{Number: 1, Status: 504, Expired: true}, "dead: expired"},
		{Try{Number: 1, Status: 504, Final: true}, "dead: failed"},
	} {
		if got := s.After(now, c.try).String(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.try, got, c.want)
		}
	}
	for _, c := range []struct {
		post Post
		want string
	}{
		{Post{Number: 1, Status: 204}, "done"},
		{Post{Number: 1, Status: 303}, "done"},
		{Post{Number: 1}, "again at 2026-11-21T00:00:01Z"},
		{Post{Number: 2, Status: 429}, "again at 2026-11-21T00:00:02Z"},
		{Post{Number: 3, Status: 502}, "dead: callback"},
		{Post{Number: 1, Status: 400}, "dead: callback"},
		{Post{Number: 1, Refused: true}, "dead: callback"},
	} {
		if got := s.AfterPost(now, c.post).String(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.post, got, c.want)
		}
	}
	if s.Hopeless(103) || !s.Hopeless(104) {
		t.Error("Hopeless")
	}
}

// For any sequence of results: every message comes to an end, waits are within bounds,
// and no success is tried again.
func FuzzDecide(f *testing.F) {
	f.Add(3, int64(1e9), int64(2e9), 503, 1, 500, false, false)
	f.Add(0, int64(-1), int64(0), 0, -5, 0, true, true)
	f.Fuzz(func(t *testing.T, attempts int, low, high int64, code, number, status int, absent, malformed bool) {
		s := Settings{Attempts: attempts, MinWait: time.Duration(low), MaxWait: time.Duration(high), Codes: []int{code}}
		now := time.Unix(0, 0)
		for _, a := range []Action{s.After(now, Try{Number: number, Status: status, Absent: absent, Malformed: malformed}), s.AfterPost(now, Post{Number: number, Status: status, Refused: absent})} {
			switch a.Kind {
			case Again:
				if number >= attempts {
					t.Fatalf("try %d of %d is followed by another", number, attempts)
				}
				if wait := a.At.Sub(now); wait < time.Millisecond || wait > max(s.MaxWait, time.Millisecond) {
					t.Fatalf("waits %v, bounds %v %v", wait, s.MinWait, s.MaxWait)
				}
			case Dead:
				if !slices.Contains(Reasons, a.Reason) {
					t.Fatalf("reason %q", a.Reason)
				}
			case Done:
				if absent || malformed && a == s.After(now, Try{Number: number, Status: status, Absent: absent, Malformed: malformed}) {
					t.Fatal("done without having been executed")
				}
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("3", "1s", "2s", "500")
	f.Fuzz(func(t *testing.T, attempts, low, high, codes string) {
		s, err := Parse(map[string]string{Attempts: attempts, MinWait: low, MaxWait: high, Codes: codes})
		if err != nil {
			return
		}
		if s.Attempts < 1 || s.MinWait <= 0 || s.MinWait > s.MaxWait || s.MaxWait > LongestWait || len(s.Codes) == 0 {
			t.Fatalf("%+v", s)
		}
	})
}
