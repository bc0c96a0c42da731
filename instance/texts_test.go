package instance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// summer answers a text with the sum of its ids that the mask keeps. A row with the id poisoned fails its run.
type summer struct{ runs int }

const poisoned = 7

func (s *summer) Inputs() (infos []tensor.Info) {
	for _, name := range []string{"attention_mask", "input_ids"} {
		infos = append(infos, tensor.Info{Name: name, Type: tensor.Int32, Shape: []int64{-1, -1}})
	}
	return infos
}

func (s *summer) Outputs() []tensor.Info {
	return []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 1}}}
}

func (s *summer) Close() error { return nil }

func (s *summer) Run(_ context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	s.runs++
	y := tensor.Tensor{Name: "y", Type: tensor.FP32, Shape: []int64{int64(rows), 1}}
	length := int(inputs[1].Shape[1])
	for row := range rows {
		sum := uint32(0)
		for at := row * length; at < (row+1)*length; at++ {
			id := binary.LittleEndian.Uint32(inputs[1].Data[4*at:])
			if id == poisoned {
				return nil, errors.New("a row is poisoned")
			}
			sum += id * binary.LittleEndian.Uint32(inputs[0].Data[4*at:])
		}
		y.Data = binary.LittleEndian.AppendUint32(y.Data, math.Float32bits(float32(sum)))
	}
	return []tensor.Tensor{y}, nil
}

func newSummer(t *testing.T) (*summer, *Server) {
	t.Helper()
	engine := &summer{}
	s, err := NewServer(engine, Options{
		Name: "tiny", MaxBatch: 4, TextDir: "text/testdata", Logger: zerolog.Nop(),
		Text: &bundle.Text{Task: bundle.TaskEmbed, Tokenizer: "tiny.json", MaxLength: 64, Pad: "[CLS]", Pooling: bundle.PoolNone},
	})
	if err != nil {
		t.Fatal(err)
	}
	return engine, s
}

func embed(ids string) frame.Request {
	return frame.Request{Method: http.MethodPost, Path: "/v1/embeddings", Header: http.Header{}, Body: []byte(`{"input":` + ids + `}`)}
}

// A text that makes its run fail fails its own request only, a late request does not run, and every other one gets
// the answers to its own texts in their order.
func TestTextsOfABatchAreIsolated(t *testing.T) {
	engine, s := newSummer(t)
	late := embed(`[[9,9,9,9]]`)
	late.Due = time.Now().Add(-time.Second)
	responses, spent := s.HandleBatch(context.Background(), []frame.Request{
		embed(`[[1,2,3],[4],[5,5,5,5,5,5,5,5,5]]`), embed(`[[8],[7]]`), late, embed(`[10]`),
	})
	for i, want := range []struct {
		status int
		sums   []int
	}{{200, []int{6, 4, 45}}, {500, nil}, {503, nil}, {200, []int{10}}} {
		body := string(responses[i].Body)
		if responses[i].Status != want.status || want.sums == nil && !strings.Contains(body, `"type":"server_error"`) {
			t.Errorf("member %d: %d %s, want %d", i, responses[i].Status, body, want.status)
		}
		for at, sum := range want.sums {
			if part := fmt.Sprintf(`"index":%d,"embedding":[%d]`, at, sum); !strings.Contains(body, part) {
				t.Errorf("member %d: %s lacks %s", i, body, part)
			}
		}
	}
	if responses[2].Header.Get("Retry-After") == "" {
		t.Error("a late request is not told to come again")
	}
	if spent.Rows != 7.0/4 || engine.runs == 0 {
		t.Errorf("%v rows a request in %d runs", spent.Rows, engine.runs)
	}
}

// No request of a batch runs twice if none may.
func TestTextsRunOnce(t *testing.T) {
	engine, s := newSummer(t)
	requests := []frame.Request{embed(`[7]`), embed(`[8]`)}
	for i := range requests {
		requests[i].Once = true
	}
	responses, _ := s.HandleBatch(context.Background(), requests)
	for i, r := range responses {
		if r.Status != http.StatusInternalServerError {
			t.Errorf("member %d: %d %s", i, r.Status, r.Body)
		}
	}
	if engine.runs != 1 {
		t.Errorf("%d runs", engine.runs)
	}
}

// Models of one length tell how many rows their requests have, and no number of elements.
func TestRowsOfModelsOfOneLength(t *testing.T) {
	_, s := newSummer(t)
	s.dynamic = false
	_, spent := s.HandleBatch(context.Background(), []frame.Request{embed(`[[1],[2],[3]]`), embed(`[4]`)})
	if spent.Rows != 2 || spent.Elements != 0 {
		t.Errorf("%v rows and %d elements a request", spent.Rows, spent.Elements)
	}
}

// The answers of a batch are bounded: those for which there is no room come again, and an answer that is too large alone
// is refused.
func TestAnswersOfABatchAreBounded(t *testing.T) {
	_, s := newSummer(t)
	one, _ := s.HandleBatch(context.Background(), []frame.Request{embed(`[1]`)})
	const refusal = 200 // About the size of one.
	s.answerLimit = 2*len(one[0].Body) + refusal
	many := embed("[[1]" + strings.Repeat(",[1]", 99) + "]")
	responses, _ := s.HandleBatch(context.Background(), []frame.Request{embed(`[1]`), many, embed(`[2]`), embed(`[3]`)})
	for i, status := range []int{200, 413, 200, 503} {
		r := responses[i]
		if r.Status != status || (status == 503) != (r.Header.Get("Retry-After") != "") {
			t.Errorf("member %d: %d %v %s, want %d", i, r.Status, r.Header, r.Body, status)
		}
	}
	once := []frame.Request{embed(`[1]`), embed(`[2]`), embed(`[3]`), embed(`[4]`), embed(`[5]`)}
	for i := range once {
		once[i].Once = true
	}
	s.answerLimit -= refusal
	if responses, _ := s.HandleBatch(context.Background(), once); responses[2].Status != http.StatusInternalServerError {
		t.Errorf("one that must not run twice: %d %s", responses[2].Status, responses[2].Body)
	}
	if !strings.Contains(string(responses[1].Body), "send fewer texts") {
		t.Errorf("%s", responses[1].Body)
	}
}

// A member of which a row has run is finished, however late.
func TestBegunTextsAreFinished(t *testing.T) {
	_, s := newSummer(t)
	now := time.Now()
	b := rowBatch{server: s, members: make([]member, 2), failed: make([]frame.Response, 2), begun: []bool{true, false}}
	for i := range b.members {
		call, _ := s.decode(embed(`[1]`))
		b.members[i] = member{Call: call, due: now.Add(-time.Second)}
	}
	live, until := b.live([]batchRow{{0, 0, 1}, {1, 0, 1}}, now)
	if len(live) != 1 || live[0].of != 0 || !until.IsZero() || b.failed[1].Status != http.StatusServiceUnavailable {
		t.Errorf("rows %v until %v, %+v", live, until, b.failed)
	}
}
