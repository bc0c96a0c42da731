package protocol

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// textModel describes a model of texts with vectors of four elements.
func textModel(t testing.TB, task string) *Model {
	t.Helper()
	m := &Model{Name: "tiny.openfaas-fn"}
	for _, name := range []string{"input_ids", "attention_mask"} {
		m.Inputs = append(m.Inputs, tensor.Info{Name: name, Type: tensor.Int32, Shape: []int64{-1, -1}})
	}
	m.Outputs = []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 4}}}
	settings := bundle.Text{Task: task, Tokenizer: "tiny.json", MaxLength: 16, Pad: "[PAD]", Pooling: bundle.PoolNone}
	if task == bundle.TaskRerank {
		m.Outputs[0].Shape, settings.Pooling = []int64{-1, 1}, ""
	}
	var err error
	if m.Text, err = text.Open("../text/testdata", settings, m.Inputs, m.Outputs, text.Options{}); err != nil {
		t.Fatal(err)
	}
	return m
}

func textRequest(path, body string) frame.Request {
	return frame.Request{Method: http.MethodPost, Path: path, Header: http.Header{}, Body: []byte(body)}
}

// Requests that are wrong are refused in OpenAI's form, with the field.
func TestWrongTexts(t *testing.T) {
	embed, rerank := textModel(t, bundle.TaskEmbed), textModel(t, bundle.TaskRerank)
	many := `["a"` + strings.Repeat(`,"a"`, maxTexts) + `]`
	for _, c := range []struct {
		m                 *Model
		body, param, want string
	}{
		{embed, `{}`, "input", `"input" is missing`},
		{embed, `{"input":""}`, "input", "input cannot be an empty string"},
		{embed, `{"input":["a",""]}`, "input", "element 1"},
		{embed, `{"input":[]}`, "input", "is empty"},
		{embed, `{"input":[[]]}`, "input", "empty list of token ids"},
		{embed, `{"input":null}`, "input", "must be a text"},
		{embed, `{"input":{"a":1}}`, "input", "must be a text"},
		{embed, `{"input":["a",[1]]}`, "input", "element 1"},
		{embed, `{"input":[1,"a"]}`, "input", "token ids are integers"},
		{embed, `{"input":[1.5]}`, "", "must be an integer"},
		{embed, `{"input":[-1]}`, "input", "position 0 is out of range"},
		{embed, `{"input":[99999999999999999999]}`, "", "must be an integer"},
		{embed, `{"input":` + many + `}`, "input", "more than 2048"},
		{embed, `{"input":[1` + strings.Repeat(",1", maxTokens) + `]}`, "input", "more than 131072 token ids"},
		{embed, `{"input":"a","input":"b"}`, "input", "twice"},
		{embed, `{"input":"a","encoding_format":"int8"}`, "encoding_format", "float or base64"},
		{embed, `{"input":"a","dimensions":0}`, "dimensions", "at least 1"},
		{embed, `{"input":"a","dimensions":5}`, "dimensions", "have 4"},
		{embed, `{"input":"a"`, "", "valid JSON"},
		{embed, `{"input":"a"}x`, "", "valid JSON"},
		{embed, `{"input":a}`, "", "valid JSON"},
		{embed, `{"input":["a",b]}`, "", "valid JSON"},
		{embed, `{"input":[1,}`, "", "valid JSON"},
		{rerank, `{"documents":["a"]}`, "query", "is missing"},
		{rerank, `{"query":"","documents":["a"]}`, "query", "empty string"},
		{rerank, `{"query":"a"}`, "documents", "missing or empty"},
		{rerank, `{"query":"a","documents":[]}`, "documents", "missing or empty"},
		{rerank, `{"query":"a","documents":"b"}`, "documents", "list of texts"},
		{rerank, `{"query":"a","documents":[1]}`, "documents", "neither a text"},
		{rerank, `{"query":"a","documents":[b]}`, "", "valid JSON"},
		{rerank, `{"query":"a","documents":[{"title":"b"}]}`, "documents", "without the key"},
		{rerank, `{"query":"a","documents":` + many + `}`, "documents", "more than 2048"},
		{rerank, `{"query":"a","documents":["b"],"top_n":0}`, "top_n", "at least 1"},
	} {
		path := embeddingsPath
		if c.m == rerank {
			path = rerankPaths[0]
		}
		call, r := c.m.Decode(textRequest(path, c.body))
		var answer struct {
			Error struct{ Message, Type, Param string }
		}
		if call != nil || json.Unmarshal(r.Body, &answer) != nil || r.Status != http.StatusBadRequest ||
			!strings.Contains(answer.Error.Message, c.want) || answer.Error.Param != c.param || answer.Error.Type != "invalid_request_error" {
			t.Errorf("%.100s: %d %.300s, want 400 with %q about %q", c.body, r.Status, r.Body, c.want, c.param)
		}
	}
}

// Halves of surrogate pairs and bytes that are not UTF-8 are read as U+FFFD. Special tokens in texts are text.
func TestOddTexts(t *testing.T) {
	m := textModel(t, bundle.TaskEmbed)
	ids := func(body string) []int32 {
		call, r := m.Decode(textRequest(embeddingsPath, body))
		if call == nil {
			t.Fatalf("%q: %d %s", body, r.Status, r.Body)
		}
		return call.Texts[0].IDs
	}
	whole := ids(`{"input":"x request"}`)
	for _, body := range []string{`{"input":"x \ud800request"}`, "{\"input\":\"x \xff request\"}", `{"input":"x\u0000 request"}`} {
		if got := ids(body); len(got) != len(whole) { // BERT leaves U+FFFD and U+0000 out.
			t.Errorf("%q: %v, want %v", body, got, whole)
		}
	}
	const sep = 3
	hostile := ids(`{"input":"x [SEP] x"}`)
	if at := slices.Index(hostile, sep); at != len(hostile)-1 {
		t.Errorf("[SEP] in a text became a special token: %v", hostile)
	}
	if got := ids(`{"input":[3,4]}`); len(got) != 2 {
		t.Errorf("tokens as given: %v", got)
	}
}

// Every request of texts is refused with a reason, or has rows that the model takes and an answer that is JSON.
func FuzzTexts(f *testing.F) {
	embed, rerank := textModel(f, bundle.TaskEmbed), textModel(f, bundle.TaskRerank)
	for _, body := range []string{
		`{"input":"a","model":"tiny","encoding_format":"base64","dimensions":2,"user":"x"}`, `{"input":["a","b\ud800"]}`,
		`{"input":[1,2,3]}`, `{"input":[[1],[2,3]]}`, `{"query":"a","documents":["b",{"text":"c"}],"top_n":1,"return_documents":true}`,
		"{\"input\":\"\xff\"}", `{"input":[[[1]]]}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, m := range []*Model{embed, rerank} {
			for _, path := range []string{embeddingsPath, rerankPaths[1], "/"} {
				r := textRequest(path, "")
				r.Body = body
				call, response := m.Decode(r)
				if call == nil {
					if response.Status < 400 || !json.Valid(response.Body) {
						t.Fatalf("%s %q: %d %s", path, body, response.Status, response.Body)
					}
					continue
				}
				if call.Texts == nil { // Tensors, at /.
					continue
				}
				answers := make([][]float32, len(call.Texts))
				for i, row := range call.Texts {
					if len(row.IDs) < 1 || len(row.IDs) > 16 || row.TypeIDs != nil && len(row.TypeIDs) != len(row.IDs) {
						t.Fatalf("%q: a row of %d ids and %d types", body, len(row.IDs), len(row.TypeIDs))
					}
					answers[i] = make([]float32, max(1, m.Text.Size()))
				}
				if response := call.RespondTexts(answers); response.Status != http.StatusOK || !json.Valid(response.Body) {
					t.Fatalf("%q: %d %s", body, response.Status, response.Body)
				}
			}
		}
	})
}

// A call keeps nothing of its body but the documents that its answer repeats, and says how many bytes these have.
func TestCallsKeepNoBody(t *testing.T) {
	embed, rerank := textModel(t, bundle.TaskEmbed), textModel(t, bundle.TaskRerank)
	for _, c := range []struct {
		m          *Model
		path, body string
		kept       int
	}{
		{embed, embeddingsPath, `{"input":["some","text"],"model":"tiny"}`, 0},
		{rerank, rerankPaths[0], `{"query":"a","documents":["one","three"],"model":"tiny"}`, 0},
		{rerank, rerankPaths[0], `{"query":"a","documents":["one","three"],"model":"tiny","return_documents":true}`, 8},
	} {
		r := textRequest(c.path, c.body)
		call, response := c.m.Decode(r)
		if call == nil {
			t.Fatalf("%d %s", response.Status, response.Body)
		}
		rows := []text.Row{{IDs: slices.Clone(call.Texts[0].IDs)}, {IDs: slices.Clone(call.Texts[1].IDs)}}
		copy(r.Body, strings.Repeat("#", len(r.Body)))
		vector := [][]float32{make([]float32, c.m.Text.Size()), make([]float32, c.m.Text.Size())}
		answer := call.RespondTexts(vector)
		if call.Kept != c.kept || answer.Status != http.StatusOK || strings.Contains(string(answer.Body), "#") {
			t.Errorf("%s: %d bytes kept, %d %s", c.body, call.Kept, answer.Status, answer.Body)
		}
		for i, row := range rows {
			if !slices.Equal(row.IDs, call.Texts[i].IDs) {
				t.Errorf("%s: row %d lies in the body", c.body, i)
			}
		}
		if c.kept > 0 && !strings.Contains(string(answer.Body), `"three"`) {
			t.Errorf("%s", answer.Body)
		}
	}
}

// The keys of texts alone make a body to the function itself one of texts.
func TestKeysOfTexts(t *testing.T) {
	for body, want := range map[string]bool{
		`{"model":"m","input":"a"}`: true, `{"query":"a"}`: true, `{"documents":["a"]}`: true,
		`{"texts":["a"]}`: false, `{"inputs":["a"]}`: false, `{"instances":["a"]}`: false,
	} {
		if got := isTextBody([]byte(body)); got != want {
			t.Errorf("%s: %v", body, got)
		}
	}
}
