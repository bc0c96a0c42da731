package protocol

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tokenizer"
)

// textCounter counts for [textModel].
func textCounter(t testing.TB, task string) *text.Counter {
	t.Helper()
	file, err := os.ReadFile("../text/testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := tokenizer.New(file, tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return text.NewCounter(tokens, bundle.Text{Task: task}, 16)
}

// FuzzSize checks that a request has the size that an instance finds, if the instance accepts it.
func FuzzSize(f *testing.F) {
	for _, body := range []string{
		`{"model":"tiny","input":"x request"}`, `{"input":["a b c","\u00e9 [SEP]","` + strings.Repeat("request ", 40) + `"]}`,
		`{"input":[1,2,3]}`, `{"input":[[1,2],[3]]}`, `{"query":"a","documents":["b",{"text":"request x"}],"top_n":1}`,
		`{"documents":["b"],"query":"` + strings.Repeat("x ", 30) + `"}`, `{"inputs":[[1,2]]}`,
	} {
		for _, path := range []string{"/", embeddingsPath, rerankPaths[1], "/v2/models/tiny/infer"} {
			f.Add(path, body)
		}
	}
	tasks := []string{bundle.TaskEmbed, bundle.TaskRerank}
	var models []*Model
	var counters []*text.Counter
	for _, task := range tasks {
		models, counters = append(models, textModel(f, task)), append(counters, textCounter(f, task))
	}
	f.Fuzz(func(t *testing.T, path, body string) {
		if len(body) > 1<<12 { // Longer texts are sampled.
			return
		}
		for i, m := range models {
			call, _ := m.Decode(textRequest(path, body))
			size, ok := SizeOf(counters[i], path, []byte(body))
			if call == nil || call.Texts == nil {
				continue
			}
			if want := (Size{len(call.Texts), tokensOf(call.Texts), true}); !ok || size.Exact && size != want {
				t.Errorf("%s: %s %q: %+v %v, want %+v", tasks[i], path, body, size, ok, want)
			}
		}
	})
}

// A large request is sized by a part of it.
func TestLargeRequestsAreSampled(t *testing.T) {
	c := textCounter(t, bundle.TaskEmbed)
	m := textModel(t, bundle.TaskEmbed)
	for n, each := range map[int]string{1: strings.Repeat("x ", 1<<20), 2000: "x request x", 1500: strings.Repeat("x ", 200)} {
		body := fmt.Sprintf(`{"input":[%s"%[2]s"]}`, strings.Repeat(fmt.Sprintf("%q,", each), n-1), each)
		call, _ := m.Decode(textRequest(embeddingsPath, body))
		got, ok := SizeOf(c, embeddingsPath, []byte(body))
		want := tokensOf(call.Texts)
		if !ok || got.Rows < n*9/10 || got.Rows > n*11/10 || got.Tokens < want*8/10 || got.Tokens > want*12/10 {
			t.Errorf("%d texts of %d bytes: %+v, want %d tokens", n, len(each), got, want)
		}
	}
}

// Bodies that are wrong, or have no texts, have no size.
func TestWrongRequestsHaveNoSize(t *testing.T) {
	c := textCounter(t, bundle.TaskEmbed)
	for _, body := range []string{"", "{", `{"input":[]}`, `{"input":"a"`, `{"input":["a",1]}`, `{"inputs":["a"]}`, `[1]`} {
		for _, path := range []string{"", "/", embeddingsPath, "/v1/models/tiny:predict"} {
			if size, ok := SizeOf(c, path, []byte(body)); ok {
				t.Errorf("%q to %q: %+v", body, path, size)
			}
		}
	}
}

func BenchmarkSizeOf(b *testing.B) {
	c := textCounter(b, bundle.TaskEmbed)
	for _, n := range []int{1, 64} {
		body := []byte(`{"model":"tiny","input":["` + strings.Repeat(strings.Repeat("x request ", 10)+`","`, n-1) + `x"]}`)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				SizeOf(c, embeddingsPath, body)
			}
		})
	}
}
