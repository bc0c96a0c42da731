package dispatch

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
)

func TestTextsInBodies(t *testing.T) {
	for body, want := range map[string]look{
		`{"model":"m","input":"hello world"}`:         {worded, 5 + 1 + 5 + 11, 1},
		`{"input": ["hello", "big, \"red\"\nworld"]}`: {worded, 5 + (5+19)/2, 2},
		`["a","b","c"]`:                                                         {worded, 1, 3},
		`{"input":["\u00e9\u00e8"]}`:                                            {worded, 5 + 12, 1},
		`{"query":"q","documents":["aa","bb"],"top_n":1}`:                       {worded, 5 + 1 + 9 + 5 + 2, 2},
		`{"query":"q","documents":[{"text":"aa"},{"text":"bb"}]}`:               {worded, 5 + 1 + 9 + 6, 2},
		`{"input":[101,7,102]}`:                                                 {textual, 2, 1},
		`{"input":[[101,7,102],[101,7,7,7,102]]}`:                               {textual, 3, 2},
		`{"inputs":[{"shape":[1,5],"data":[1,2,3,4,5]}]}`:                       {textual, 5, 1},
		`{"inputs":[{"data":[[1,2,3],[1,2,3]]},{"data":[[1,1,1],[1,1,1]]}]}`:    {textual, 5, 2},
		`{"inputs":[{"name":"t","shape":[2],"datatype":"BYTES","data":["a"]}]}`: {worded, 4 + 1 + 5 + 8 + 5 + 4 + 1 + 6, 1},
		`{}`:         {worded, 0, 1},
		`{"a`:        {worded, 1, 1},
		`{"a\`:       {worded, 2, 1},
		`{"a\u00`:    {worded, 5, 1},
		`{"a":[[[[`:  {worded, 1, 1},
		`{}]]}}[1,2`: {textual, 1, 1},
	} {
		if got := lookAtTexts([]byte(body)); got != want {
			t.Errorf("%s: %+v, want %+v", body, got, want)
		}
	}
	deep := strings.Repeat("[", 10*maxNested) + `"a"`
	if got := lookAtTexts([]byte(deep)); got.rows != 1 && got.rows > maxNested {
		t.Errorf("deep arrays look like %+v", got)
	}
	many, _ := json.Marshal(map[string]any{"input": strings.Split(strings.Repeat("seven letters,", 300_000), ",")})
	if got := lookAtTexts(many); got.rows != maxTexts || got.length < 12 || got.length > 19 {
		t.Errorf("%d bytes look like %+v", len(many), got)
	}
}

func FuzzTextsInBodies(f *testing.F) {
	f.Add([]byte(`{"input":["a\"",{"b":[1,2]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got := lookAtTexts(body); got.rows < 1 || got.rows > max(1, len(body)) || got.length < 0 || got.length > len(body)+1 {
			t.Errorf("%q: %+v", body, got)
		}
	})
}

// sentences are a request of n texts of so many words.
func sentences(n, words int) *frame.Request {
	all := make([]string, n)
	for i := range all {
		all[i] = strings.TrimSuffix(strings.Repeat("token, ", words), " ")
	}
	body, _ := json.Marshal(map[string]any{"model": "minilm", "input": all})
	return &frame.Request{Body: body}
}

// The number of texts is seen, and their length follows from that of earlier ones. Texts that are cut do not change what is
// known of shorter ones.
func TestTextsAreEstimatedByEarlierOnes(t *testing.T) {
	s := &sizes{}
	s.wanted.Store(true)
	s.longest.Store(3 * 256)
	estimate := func(n, words int) (int64, int) {
		l := s.lookAt(sentences(n, words))
		return s.estimate(l), l.rows
	}
	learn := func(n, words int, elements int64) {
		s.learn(looksOf([]*call{{look: s.lookAt(sentences(n, words))}}), elements)
	}
	for _, words := range []int{5, 20, 60} {
		learn(1, words, int64(3*(2*words+2)))
	}
	for _, words := range []int{10, 100} {
		for _, n := range []int{1, 64} {
			if got, rows := estimate(n, words); math.Abs(float64(got)-float64(3*(2*words+2))) > float64(words)/2 || rows != n {
				t.Errorf("%d texts of %d words: %d elements, %d rows", n, words, got, rows)
			}
		}
	}
	for range 100 {
		learn(1, 5000, 3*256)
	}
	if got, _ := estimate(1, 20); math.Abs(float64(got)-3*42) > 10 {
		t.Errorf("behind texts that were cut, 20 words have %d elements", got)
	}
	if got, _ := estimate(1, 4000); got != 3*256 {
		t.Errorf("a text that will be cut has %d elements", got)
	}
}

// The time of a batch of texts is that of all rows, padded to the longest. An instance's report counts rows.
func TestBatchesOfTexts(t *testing.T) {
	exec := make([]time.Duration, 4)
	for i := range exec {
		exec[i] = time.Duration(20+10*i) * time.Millisecond
	}
	in := batching.Instance{Exec: exec, Sizes: proportional(100), Longest: 1000}
	b := &batch{limit: 4, calls: []*call{{elements: 150, look: look{worded, 1, 3}}, {elements: 200, look: look{worded, 1, 1}}}}
	if b.predict(&in); b.rows != 4 || b.predicted != 100*time.Millisecond || b.least != 20*time.Millisecond {
		t.Errorf("%d rows, %v, at least %v", b.rows, b.predicted, b.least)
	}
	answers := []frame.Response{{Status: 200}, {Status: 200}}
	for rows, want := range map[float64]Executed{
		0:   {Size: 2, Exec: 80 * time.Millisecond, Elements: 9},
		1.5: {Size: 3, Exec: 80 * time.Millisecond, Elements: 9},
		2:   {Size: 4, Exec: 80 * time.Millisecond, Elements: 9},
		3:   {Elements: 9},
		4:   {Size: 4, Exec: 40 * time.Millisecond, Elements: 9},
		10:  {Size: 4, Exec: 16 * time.Millisecond, Elements: 9},
	} {
		if got := b.executed(answers, taken{time: 80 * time.Millisecond, reported: true, elements: 9, rows: rows}); got.Rows != rows || got.Size != want.Size || got.Exec != want.Exec || got.Elements != want.Elements {
			t.Errorf("%v rows a request: %+v, want %+v", rows, got, want)
		}
	}
}

// lengths counts a token for each byte of a body, in rows that the method says, unless the body is of another kind.
type lengths struct{ exact bool }

func (l lengths) Count(r *frame.Request) (rows, tokens int, exact bool) {
	rows, _ = strconv.Atoi(r.Method)
	return rows, len(r.Body), l.exact
}

// The size of a request whose tokens are counted is exact after the first report, whatever its words are. A
// sample counts until then.
func TestCountedTextsHaveTheirSize(t *testing.T) {
	var by Counting
	s := &sizes{counting: &by}
	s.wanted.Store(true)
	s.longest.Store(3 * 256)
	with := func(rows string, tokens int) *frame.Request {
		return &frame.Request{Method: rows, Body: []byte(fmt.Sprintf("{%*s", tokens-1, ""))}
	}
	learn := func(elements int64, all ...*frame.Request) {
		var calls []*call
		for _, r := range all {
			calls = append(calls, &call{look: s.lookAt(r)})
		}
		s.learn(looksOf(calls), elements)
	}
	by.Set(lengths{exact: false})
	learn(900, with("1", 100))
	if got := s.estimate(s.lookAt(with("1", 100))); got != 900 {
		t.Errorf("after a sample 100 tokens are %d elements, want 900", got)
	}
	by.Set(lengths{exact: true})
	learn(34*3, with("1", 70), with("3", 65)) // 33.75 tokens a row.
	for _, exact := range []bool{true, false} {
		by.Set(lengths{exact})
		l := s.lookAt(with("4", 42))
		if got := s.estimate(l); got != 31 || l.rows != 4 {
			t.Errorf("42 tokens in 4 rows are %d elements in %d rows, want 31", got, l.rows)
		}
	}
	if l := s.lookAt(with("0", 42)); l.format == inTokens || l.format == sampled {
		t.Errorf("a body without texts looks like %+v", l)
	}
	by.Set(nil)
	if l := s.lookAt(with("4", 42)); l.format == inTokens {
		t.Errorf("nothing counts, and it looks like %+v", l)
	}
}

func BenchmarkLookAtTexts(b *testing.B) {
	for _, n := range []int{1, 64} {
		body := sentences(n, 20).Body
		b.Run(fmt.Sprint(len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				lookAtTexts(body)
			}
		})
	}
}

// A request of several texts that is late is told so: it may be too large for the objective.
func TestLateTexts(t *testing.T) {
	for of, want := range map[look]error{{rows: 0}: ErrLate, {rows: 1, format: inTokens}: ErrLate, {rows: 2, format: inTokens}: ErrLateTexts,
		{rows: 2, format: worded}: ErrLateTexts, {rows: 2, format: shaped}: ErrLate} {
		c := &call{look: of}
		if got := c.late(); got != want {
			t.Errorf("%+v: %v", of, got)
		}
	}
}
