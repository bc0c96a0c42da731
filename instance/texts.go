package instance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// textBytes is about what an element of a text takes in bytes while it waits for its run.
const textBytes = 8

// vectorBytes is about what an element of a text's vector takes in bytes, as a number and in the answer.
const vectorBytes = 4 + 14

// runTimes learns how long runs of texts take. It is safe for concurrent use.
type runTimes struct {
	mu  sync.Mutex
	fit ragged.Fit
}

func (t *runTimes) observe(rows, length int, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fit.Observe(rows, length, took.Seconds())
}

func (t *runTimes) cost() ragged.Cost {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fit.Cost()
}

// openText makes the server take texts.
func (s *Server) openText() (err error) {
	o := s.options.TextOptions
	if largest := s.options.MaxShapes["input_ids"]; len(largest) > 1 && largest[1] > 0 {
		if o.MaxLength == 0 || int64(o.MaxLength) > largest[1] {
			o.MaxLength = int(largest[1])
		}
	}
	read := s.options.TextFiles
	if read == nil {
		read = func() (*text.Files, error) { return text.ReadFiles(s.options.TextDir, s.options.Text) }
	}
	files, err := read()
	if err == nil {
		s.model.Text, err = text.New(files, *s.options.Text, s.engine.Inputs(), s.engine.Outputs(), o)
	}
	if err != nil {
		return fmt.Errorf("bundle.yaml: %w", err)
	}
	return nil
}

// separate separates the members with tensors from those with texts.
func separate(members []member) (tensors, texts []member) {
	for _, m := range members {
		if m.Texts == nil {
			tensors = append(tensors, m)
		} else {
			texts = append(texts, m)
		}
	}
	return tensors, texts
}

// batchRow is one row of a batch: the row at of the member number of. length is its own, or more if the model has one
// length.
type batchRow struct{ of, at, length int }

// rowKind is what rows of texts and rows of tensors do each in their own way.
type rowKind interface {
	// join returns the inputs of a run, and how many elements of a row's length are not padding, of all rows together.
	join(rows []batchRow, buffer func(size int) []byte) (inputs []tensor.Tensor, tokens int)
	// keep keeps the rows' answers from the outputs of their run.
	keep(rows []batchRow, outputs []tensor.Tensor) error
	// respond writes the answer of the member number of.
	respond(of int) frame.Response
}

// rowBatch is the members of a batch whose rows are cut into runs, whatever members they belong to, with what is known
// of their answers.
type rowBatch struct {
	server  *Server
	members []member
	kind    rowKind
	failed  []frame.Response
	// begun says that a row of a member has run. Such a member is finished, whatever the time.
	begun []bool
	once  bool
	spent *Spent
}

// runRows runs the rows of members in runs of like lengths. A member's answer has its rows in its own order.
func (s *Server) runRows(ctx context.Context, members []member, rows []batchRow, kind rowKind, responses []frame.Response, spent *Spent) {
	b := rowBatch{server: s, members: members, kind: kind, spent: spent}
	b.failed, b.begun = make([]frame.Response, len(members)), make([]bool, len(members))
	b.once = slices.ContainsFunc(members, func(m member) bool { return m.once })
	if b.once {
		ctx = frame.WithOnce(ctx)
	}
	lengths := make([]int, len(rows))
	for i, r := range rows {
		lengths[i] = r.length
	}
	for _, run := range ragged.Runs(lengths, s.runTimes.cost(), s.options.MaxBatch) {
		own := make([]batchRow, len(run))
		for i, at := range run {
			own[i] = rows[at]
		}
		b.run(ctx, own)
	}
	for i, m := range members {
		if b.failed[i].Status != 0 {
			responses[m.at] = b.failed[i]
			continue
		}
		s.put(m, kind.respond(i), responses)
	}
}

// fail gives a member an error as its answer. The first one stays.
func (b *rowBatch) fail(of, status int, err error) {
	if b.failed[of].Status == 0 {
		b.failed[of] = b.members[of].Failure(status, err)
		if errors.Is(err, errLate) {
			b.failed[of].Header.Set("Retry-After", "1")
		}
	}
}

// live returns the rows whose members still need an answer, and the time from which none of them does. A member of which
// a row has run needs its answer: what was computed would be lost.
func (b *rowBatch) live(rows []batchRow, now time.Time) (live []batchRow, until time.Time) {
	var group []member
	for _, r := range rows {
		m := b.members[r.of]
		if b.begun[r.of] {
			m.due = time.Time{}
		}
		if !m.due.IsZero() && now.After(m.due) {
			b.fail(r.of, http.StatusServiceUnavailable, errLate)
		}
		if b.failed[r.of].Status == 0 {
			live, group = append(live, r), append(group, m)
		}
	}
	return live, due(group)
}

// run runs rows together. If that fails, each row runs again alone, as members do in runGroup.
func (b *rowBatch) run(ctx context.Context, rows []batchRow) {
	rows, until := b.live(rows, time.Now())
	if len(rows) == 0 {
		return
	}
	err := b.execute(ctx, rows, until)
	switch {
	case err == nil:
	case errors.Is(err, errLate):
		for _, r := range rows {
			b.fail(r.of, http.StatusServiceUnavailable, err)
		}
	case ctx.Err() != nil:
		for _, r := range rows {
			b.fail(r.of, http.StatusServiceUnavailable, errors.New("the request was cancelled before it ran"))
		}
	case len(rows) == 1 || lost(err):
		for _, r := range rows {
			b.fail(r.of, statusOf(err), err)
		}
	case b.once:
		err = fmt.Errorf("the batch that this request was in failed, and no request of this function runs twice: %w", err)
		for _, r := range rows {
			b.fail(r.of, http.StatusInternalServerError, err)
		}
	default:
		b.server.metrics.retries.Inc()
		for i := range rows {
			b.run(ctx, rows[i:i+1])
		}
	}
}

// execute runs rows together and keeps their answers.
func (b *rowBatch) execute(ctx context.Context, rows []batchRow, until time.Time) error {
	s := b.server
	var releases []func()
	inputs, tokens := b.kind.join(rows, func(size int) []byte {
		buffer, release := s.inputBuffer(size)
		releases = append(releases, release)
		return buffer[:size]
	})
	shape := inputs[0].Shape
	length := int(shape[len(shape)-1])
	before := b.spent.Exec
	outputs, failed, returned, err := s.run(ctx, []int{int(shape[0])}, inputs, until, b.spent)
	for _, release := range releases {
		release()
	}
	defer returned()
	if err == nil {
		err = failed[0]
	}
	if err != nil {
		return err
	}
	s.runTimes.observe(len(rows), length, b.spent.Exec-before)
	s.metrics.tokens.Add(float64(tokens))
	s.metrics.padding.Add(float64(len(rows)*length - tokens))
	return b.keep(rows, outputs[0])
}

// keep reads the outputs of a run.
func (b *rowBatch) keep(rows []batchRow, outputs []tensor.Tensor) (err error) {
	defer b.server.recovered(&err)
	if err = b.kind.keep(rows, outputs); err != nil {
		return err
	}
	for _, r := range rows {
		b.begun[r.of] = true
	}
	return nil
}

// textRows are rows of texts, with the answers that are known.
type textRows struct {
	server  *Server
	members []member
	answers [][][]float32
}

// runTexts runs members that have texts.
func (s *Server) runTexts(ctx context.Context, members []member, responses []frame.Response, spent *Spent) {
	if len(members) == 0 {
		return
	}
	kind := textRows{s, members, make([][][]float32, len(members))}
	var rows []batchRow
	for i, m := range members {
		kind.answers[i] = make([][]float32, len(m.Texts))
		for j, row := range m.Texts {
			rows = append(rows, batchRow{i, j, s.model.Text.Length(len(row.IDs))})
		}
	}
	s.runRows(ctx, members, rows, kind, responses, spent)
}

func (t textRows) own(rows []batchRow) []text.Row {
	own := make([]text.Row, len(rows))
	for i, r := range rows {
		own[i] = t.members[r.of].Texts[r.at]
	}
	return own
}

func (t textRows) join(rows []batchRow, buffer func(size int) []byte) (inputs []tensor.Tensor, tokens int) {
	own := t.own(rows)
	for _, row := range own {
		tokens += len(row.IDs)
	}
	return t.server.model.Text.Inputs(own, buffer), tokens
}

func (t textRows) keep(rows []batchRow, outputs []tensor.Tensor) error {
	answers, err := t.server.model.Text.Answers(t.own(rows), outputs)
	for i, answer := range answers {
		t.answers[rows[i].of][rows[i].at] = answer
	}
	return err
}

func (t textRows) respond(of int) (response frame.Response) {
	m, answers := t.members[of], t.answers[of]
	t.answers[of] = nil
	err := func() (err error) {
		defer t.server.recovered(&err)
		response = m.RespondTexts(answers)
		return nil
	}()
	if err != nil {
		return m.Failure(http.StatusInternalServerError, err)
	}
	return response
}
