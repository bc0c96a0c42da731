package onnxruntime

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
)

const textData = "../text/testdata"

// textReference is what sentence-transformers answers: see reference.py beside it.
type textReference struct {
	MaxLength int         `json:"max_length"`
	Texts     []string    `json:"texts"`
	Mean      [][]float32 `json:"mean"`
	First     [][]float32 `json:"cls"`
	Last      [][]float32 `json:"lasttoken"`
	Max       [][]float32 `json:"max"`
	Weighted  [][]float32 `json:"weightedmean"`
	Dense     [][]float32 `json:"dense"`
	Scores    []float64   `json:"scores"`
}

func readTextReference(t testing.TB) (r textReference) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(textData, "reference.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// textServer serves a model of textData.
func textServer(t testing.TB, model string, maxBatch int, settings bundle.Text, options text.Options) *instance.Server {
	t.Helper()
	settings.Tokenizer, settings.Pad = "tiny.json", "[PAD]"
	s, err := instance.NewServer(mustOpen(t, Options{Model: filepath.Join(textData, model)}), instance.Options{
		Name: "tiny.openfaas-fn", MaxBatch: maxBatch, Text: &settings, TextDir: textData, TextOptions: options, Logger: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func post(path string, body any) frame.Request {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return frame.Request{Method: http.MethodPost, Path: path, Header: http.Header{}, Body: text}
}

type object = map[string]any

// embeddingsOf reads an answer.
func embeddingsOf(t testing.TB, r frame.Response) (vectors [][]float32, tokens int) {
	t.Helper()
	var answer struct {
		Data []struct {
			Index     int
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		}
	}
	if err := json.Unmarshal(r.Body, &answer); err != nil || r.Status != http.StatusOK {
		t.Fatalf("%d %.300s: %v", r.Status, r.Body, err)
	}
	for i, d := range answer.Data {
		var vector []float32
		var encoded string
		if json.Unmarshal(d.Embedding, &encoded) == nil {
			raw, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				t.Fatal(err)
			}
			for ; len(raw) > 0; raw = raw[4:] {
				vector = append(vector, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
			}
		} else if err := json.Unmarshal(d.Embedding, &vector); err != nil {
			t.Fatal(err)
		}
		if d.Index != i {
			t.Fatalf("embedding %d has the index %d", i, d.Index)
		}
		vectors = append(vectors, vector)
	}
	if answer.Usage.Prompt != answer.Usage.Total {
		t.Errorf("%+v", answer.Usage)
	}
	return vectors, answer.Usage.Total
}

func checkVectors(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d vectors, want %d", what, len(got), len(want))
	}
	for i := range got {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("%s: vector %d has %d elements, want %d", what, i, len(got[i]), len(want[i]))
		}
		for j := range got[i] {
			if math.Abs(float64(got[i][j]-want[i][j])) > 1e-5 {
				t.Errorf("%s: element %d of vector %d is %v, want %v", what, j, i, got[i][j], want[i][j])
				break
			}
		}
	}
}

// dense is the mean, through layers of text.dense.
const dense = "dense"

// Embeddings are sentence-transformers', with every pooling: alone, with others in a request, and with requests of
// other lengths in a batch, which are padded.
func TestEmbeddingsArePythons(t *testing.T) {
	reference := readTextReference(t)
	layers := []bundle.Dense{{File: "dense0.safetensors", Activation: bundle.ActivationTanh}, {File: "dense1.safetensors"}}
	for pooling, want := range map[string][][]float32{
		bundle.PoolMean: reference.Mean, bundle.PoolFirst: reference.First, bundle.PoolLast: reference.Last,
		bundle.PoolMax: reference.Max, bundle.PoolWeighted: reference.Weighted, dense: reference.Dense,
	} {
		settings := bundle.Text{Task: bundle.TaskEmbed, MaxLength: reference.MaxLength, Pooling: pooling, Normalize: true}
		if pooling == dense {
			settings.Pooling, settings.Normalize, settings.Dense = bundle.PoolMean, false, layers
		}
		s := textServer(t, "tiny.onnx", 4, settings, text.Options{})
		whole := post("/v1/embeddings", object{"input": reference.Texts, "model": "tiny", "encoding_format": "base64"})
		requests := []frame.Request{whole}
		for _, text := range reference.Texts {
			requests = append(requests, post("/", object{"input": text, "model": "tiny.openfaas-fn"}))
		}
		responses, spent := s.HandleBatch(context.Background(), requests)
		got, tokens := embeddingsOf(t, responses[0])
		checkVectors(t, pooling+": together", got, want)
		sum := 0
		for i := range reference.Texts {
			one, n := embeddingsOf(t, responses[i+1])
			checkVectors(t, pooling+": one of a batch", one, want[i:i+1])
			alone, _ := s.HandleBatch(context.Background(), requests[i+1:i+2])
			if !slices.Equal(alone[0].Body, responses[i+1].Body) {
				one, _ = embeddingsOf(t, alone[0])
				checkVectors(t, pooling+": alone", one, want[i:i+1])
			}
			sum += n
		}
		if sum != tokens || spent.Elements != int64(3*tokens/len(want)) {
			t.Errorf("%d tokens together, %d one by one, %d elements a row", tokens, sum, spent.Elements)
		}
		if rows := 16.0 / 9; math.Abs(spent.Rows-rows) > 1e-9 {
			t.Errorf("%v rows a request, want %v", spent.Rows, rows)
		}
	}
}

// Scores are those of sentence-transformers' cross-encoder. They fall, and each has its document's index.
func TestScoresArePythons(t *testing.T) {
	reference := readTextReference(t)
	s := textServer(t, "rerank.onnx", 3, bundle.Text{Task: bundle.TaskRerank, MaxLength: reference.MaxLength}, text.Options{})
	documents := make([]any, len(reference.Texts))
	for i, text := range reference.Texts {
		if documents[i] = text; i%2 == 0 {
			documents[i] = object{"text": text}
		}
	}
	body := object{"query": reference.Texts[0], "documents": documents, "model": "tiny", "top_n": 5, "return_documents": true}
	for _, path := range []string{"/v1/rerank", "/v2/rerank", "/rerank", "/"} {
		responses, _ := s.HandleBatch(context.Background(), []frame.Request{post(path, body)})
		var answer struct {
			Results []struct {
				Index    int
				Score    float64 `json:"relevance_score"`
				Document struct{ Text string }
			}
		}
		if err := json.Unmarshal(responses[0].Body, &answer); err != nil || len(answer.Results) != 5 {
			t.Fatalf("%s: %d %s: %v", path, responses[0].Status, responses[0].Body, err)
		}
		before := 1.0
		for _, r := range answer.Results {
			if want := reference.Scores[r.Index]; math.Abs(r.Score-want) > 1e-5 || r.Score > before {
				t.Errorf("%s: document %d has the score %v after %v, want %v", path, r.Index, r.Score, before, want)
			}
			if r.Document.Text != reference.Texts[r.Index] {
				t.Errorf("%s: document %d is %q", path, r.Index, r.Document.Text)
			}
			before = r.Score
		}
	}
}

// Requests of texts, tokens and tensors share a batch, and a wrong one spoils none of them.
func TestTextsAndTensorsInABatch(t *testing.T) {
	reference := readTextReference(t)
	s := textServer(t, "tiny.onnx", 8, bundle.Text{
		Task: bundle.TaskEmbed, MaxLength: reference.MaxLength, Pooling: bundle.PoolMean, Normalize: true}, text.Options{})
	tensor := func(name string) object {
		return object{"name": name, "datatype": "INT64", "shape": []int{1, 2}, "data": []int{0, 1}}
	}
	responses, _ := s.HandleBatch(context.Background(), []frame.Request{
		post("/v1/embeddings", object{"input": "Batches."}),
		post("/v1/embeddings", object{"input": [][]int{{2, 3}, {5, 6, 7}}, "dimensions": 4}),
		post("/v1/embeddings", object{"input": []int{2, 100000}}),
		post("/v2/models/tiny/infer", object{"inputs": []object{
			tensor("input_ids"), tensor("attention_mask"), tensor("token_type_ids")}}),
		{Method: http.MethodGet, Path: "/v1/models"},
		{Method: http.MethodGet, Path: "/v1/models/tiny"},
		post("/v1/embeddings", object{"input": "x", "dimensions": 17}),
		post("/v1/embeddings", object{"input": "x", "model": "other"}),
		post("/v1/rerank", object{"query": "x", "documents": []string{"y"}}),
		{Method: http.MethodGet, Path: "/v1/embeddings"},
	})
	for i, want := range []struct {
		status int
		body   string
	}{
		{200, `"usage":{"prompt_tokens":`}, {200, `"index":1`}, {400, `position 1 is out of range`}, {200, `"last_hidden_state"`},
		{200, `{"object":"list","data":[{"id":"tiny.openfaas-fn","object":"model",`}, {200, `"model_version_status"`},
		{400, `"param":"dimensions"`}, {404, `"code":"model_not_found"`}, {404, `/v1/embeddings`}, {405, `"invalid_request_error"`},
	} {
		if responses[i].Status != want.status || !strings.Contains(string(responses[i].Body), want.body) {
			t.Errorf("member %d: %d %.300s, want %d %s", i, responses[i].Status, responses[i].Body, want.status, want.body)
		}
	}
	short, _ := embeddingsOf(t, responses[1])
	for _, vector := range short {
		sum := 0.0
		for _, v := range vector {
			sum += float64(v) * float64(v)
		}
		if len(vector) != 4 || math.Abs(sum-1) > 1e-6 {
			t.Errorf("a vector of %d dimensions has the length² %v", len(vector), sum)
		}
	}
}

// Texts that are too long are cut or refused, as the deployment says.
func TestLongTexts(t *testing.T) {
	long := strings.Repeat("request ", 1_300_000)
	settings := bundle.Text{Task: bundle.TaskEmbed, MaxLength: 40, Pooling: bundle.PoolMean}
	for _, o := range []text.Options{{}, {MaxLength: 16}, {MaxLength: 100}, {MaxLength: 16, Refuse: true}} {
		s := textServer(t, "tiny.onnx", 8, settings, o)
		want := 40
		if o.MaxLength == 16 {
			want = 16
		}
		responses, _ := s.HandleBatch(context.Background(), []frame.Request{
			post("/v1/embeddings", object{"input": long}), post("/v1/embeddings", object{"input": make([]int, 50)})})
		for i, r := range responses {
			if o.Refuse {
				if r.Status != http.StatusBadRequest || !strings.Contains(string(r.Body), "the maximum here") {
					t.Errorf("%+v: member %d: %d %s", o, i, r.Status, r.Body)
				}
				continue
			}
			if _, tokens := embeddingsOf(t, r); tokens != want {
				t.Errorf("%+v: member %d has %d tokens, want %d", o, i, tokens, want)
			}
		}
	}
}

// A tokenizer or settings that do not fit the model are refused with the field.
func TestTextsThatDoNotFit(t *testing.T) {
	engine := mustOpen(t, Options{Model: filepath.Join(textData, "tiny.onnx")})
	ranker := mustOpen(t, Options{Model: filepath.Join(textData, "rerank.onnx")})
	good := bundle.Text{Task: bundle.TaskEmbed, Tokenizer: "tiny.json", Pad: "[PAD]", MaxLength: 8, Pooling: bundle.PoolMean}
	for want, change := range map[string]func(*bundle.Text){
		"text.pad":                   func(t *bundle.Text) { t.Pad = "<pad>" },
		"text.tokenizer":             func(t *bundle.Text) { t.Tokenizer = "none.json" },
		"text.output":                func(t *bundle.Text) { t.Output = "pooled" },
		"text.pooling is none":       func(t *bundle.Text) { t.Pooling = bundle.PoolNone },
		"text.max_length":            func(t *bundle.Text) { t.MaxLength = 1 },
		"a reranker's is [batch, 1]": func(t *bundle.Text) { t.Task = bundle.TaskRerank },
	} {
		settings := good
		change(&settings)
		_, err := text.Open(textData, settings, engine.Inputs(), engine.Outputs(), text.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := text.Open(textData, good, ranker.Inputs(), ranker.Outputs(), text.Options{}); err == nil {
		t.Error("a reranker gives embeddings")
	}
	inputs := slices.Clone(engine.Inputs())
	inputs[2].Name = "position_ids"
	if _, err := text.Open(textData, good, inputs, engine.Outputs(), text.Options{}); err == nil || !strings.Contains(err.Error(), "position_ids") {
		t.Error(err)
	}
}

// BenchmarkEmbeddings answers requests of 64 short texts, all but the model's run.
func BenchmarkEmbeddings(b *testing.B) {
	reference := readTextReference(b)
	s := textServer(b, "tiny.onnx", 32, bundle.Text{
		Task: bundle.TaskEmbed, MaxLength: reference.MaxLength, Pooling: bundle.PoolMean, Normalize: true}, text.Options{})
	var texts []string
	for i := range 64 {
		texts = append(texts, fmt.Sprintf("%d %s", i, reference.Texts[i%len(reference.Texts)]))
	}
	r := post("/v1/embeddings", object{"input": texts})
	b.ReportAllocs()
	for b.Loop() {
		s.HandleBatch(context.Background(), []frame.Request{r})
	}
}
