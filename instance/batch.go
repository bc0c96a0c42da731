package instance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// member is an inference request, its position in the batch, and the time from which its
// answer is no longer useful, zero for none. once: it must not run twice. parts, if not nil, takes
// its answer in parts.
type member struct {
	*protocol.Call
	at    int
	due   time.Time
	once  bool
	parts func(part []byte) error
}

// errLate is the error of a member that waited too long in the instance.
var errLate = errors.New("the latency objective can no longer be met for this request; try again later or lower the load")

// errCrowded is the error of a member for whose answer there is no room beside those of its neighbours.
var errCrowded = errors.New("the answers to the requests that ran together are too large")

// decodedBytes limits the decoded inputs in bytes that a batch holds at once. A batch
// that exceeds it runs in several parts. Compressed bodies and images are small, but
// their decoded inputs are not.
const decodedBytes = 64 << 20

// maxAnswers is the maximum size of a batch's answers in bytes. One answer of tensors alone may exceed it. Beyond
// 1 GiB the dispatcher gives up the whole batch.
const maxAnswers = 256 << 20

// Spent says how a batch spent its time.
type Spent struct {
	// Exec is the time that the engine ran and images were decoded. Waited is the time
	// that the batch waited while other batches had the engine.
	Exec, Waited time.Duration
	// Elements is the mean number of elements of a request's row, all inputs together; 0 if the
	// rows of the model have one size. Padding does not count.
	Elements int64
	// Rows is the mean number of rows of a request, 0 if rows of different lengths do not run together.
	Rows float64
}

// HandleBatch runs a batch and returns each request's answer at the request's position.
// When ctx ends, requests that have not run yet get 503.
func (s *Server) HandleBatch(ctx context.Context, requests []frame.Request) ([]frame.Response, Spent) {
	responses := make([]frame.Response, len(requests))
	members := make([]member, 0, len(requests))
	var spent Spent
	held, answered, elements := 0, 0, meanSize{}
	run := func() {
		began, before := time.Now(), spent.Waited
		tensors, texts := separate(members)
		s.runTensors(ctx, tensors, responses, &spent)
		s.runTexts(ctx, texts, responses, &spent)
		s.metrics.outcome(members, responses, time.Since(began), spent.Waited-before)
		clear(members) // What they hold is free.
		members, held, answered = members[:0], 0, sizeOf(responses)
	}
	for i, r := range requests {
		if int64(len(r.Body)) > s.options.BodyLimit {
			responses[i] = tooLarge(r.Path, s.options.BodyLimit)
			continue
		}
		if answered >= s.answerLimit {
			responses[i] = again(protocol.FailureAt(r.Path, http.StatusServiceUnavailable, errCrowded))
			continue
		}
		call, response, took := s.decodeTimed(r)
		spent.Exec += took
		if call == nil {
			responses[i] = response
			continue
		}
		members = append(members, member{Call: call, at: i, due: r.Due, once: r.Once, parts: r.Parts})
		if s.dynamic || s.padsRows {
			elements.add(s.model.Text, call)
		}
		if held += heldBy(call, s.model.Text); held > decodedBytes {
			run()
		}
	}
	run()
	for _, r := range responses {
		s.metrics.request(r.Status)
	}
	s.metrics.members.Observe(float64(len(requests)))
	if s.dynamic {
		spent.Elements = elements.mean()
	}
	if s.padsRows {
		spent.Rows = float64(elements.rows) / float64(max(1, elements.requests))
	}
	return responses, spent
}

// heldBy is about what a call holds in bytes until it has its answer, with the answer to its texts.
func heldBy(call *protocol.Call, texts *text.Reader) (held int) {
	held = call.Kept
	for _, row := range call.Texts {
		held += int(texts.Elements(row))*textBytes + texts.Size()*vectorBytes
	}
	for _, in := range call.Inputs {
		held += len(in.Data)
	}
	return held
}

// put makes a response the answer of a member. It refuses a response that would make the answers of the batch too large.
func (s *Server) put(m member, response frame.Response, responses []frame.Response) {
	n, others := len(response.Body), sizeOf(responses)
	switch {
	case m.Texts != nil && n > s.answerLimit:
		response = m.Failure(http.StatusRequestEntityTooLarge, fmt.Errorf(
			"the answer has %d bytes; at most %d are allowed; send fewer texts in a request", n, s.answerLimit))
	case others > 0 && others+n > s.answerLimit && m.once: // It has run.
		response = m.Failure(http.StatusInternalServerError, errCrowded)
	case others > 0 && others+n > s.answerLimit:
		response = again(m.Failure(http.StatusServiceUnavailable, errCrowded))
	}
	responses[m.at] = response
}

// sizeOf is the size of the answers so far in bytes.
func sizeOf(responses []frame.Response) (n int) {
	for i := range responses {
		n += len(responses[i].Body)
	}
	return n
}

// again tells a client to try again after a moment.
func again(response frame.Response) frame.Response {
	response.Header.Set("Retry-After", "1")
	return response
}

// meanSize is the mean size of requests' rows. A request of texts counts as often as it has rows.
type meanSize struct{ sum, count, requests, rows int64 }

// add adds a request.
func (m *meanSize) add(reader *text.Reader, call *protocol.Call) {
	m.requests, m.rows = m.requests+1, m.rows+int64(call.Rows)
	for _, row := range call.Texts {
		m.sum, m.count = m.sum+reader.Elements(row), m.count+1
	}
	if call.Texts != nil {
		return
	}
	row := int64(0)
	for _, in := range call.Inputs {
		n := int64(1)
		for _, d := range in.Shape[1:] {
			n *= d
		}
		row += n
	}
	m.sum, m.count = m.sum+row, m.count+1
}

// mean is 0 without requests.
func (m *meanSize) mean() int64 { return m.sum / max(1, m.count) }

// decodeTimed decodes one member. If the function takes images, it also returns the
// decoding time, which counts as execution time. Otherwise that time is 0.
func (s *Server) decodeTimed(r frame.Request) (*protocol.Call, frame.Response, time.Duration) {
	if s.model.Images == nil {
		call, response := s.decode(r)
		return call, response, 0
	}
	began := time.Now()
	call, response := s.decode(r)
	return call, response, time.Since(began)
}

// group splits members into groups that run together: at most MaxBatch rows of
// the same shape. A member that alone has more rows is a group of its own.
func (s *Server) group(members []member) [][]member {
	var groups [][]member
	open := map[string]int{} // the group that still has room, by shape
	rows := map[string]int{}
	for _, m := range members {
		shape := s.shapeOf(m)
		at, ok := open[shape]
		if !ok || rows[shape]+m.Rows > s.options.MaxBatch {
			at = len(groups)
			groups = append(groups, nil)
			open[shape], rows[shape] = at, 0
		}
		groups[at] = append(groups[at], m)
		rows[shape] += m.Rows
	}
	return groups
}

// shapeOf returns a key of the shapes of a member's rows. It is empty for models
// whose only dynamic dimension is the batch: all their rows have one shape.
func (s *Server) shapeOf(m member) string {
	if !s.dynamic {
		return ""
	}
	var shape []byte
	for _, in := range m.Inputs {
		shape = fmt.Append(shape, in.Shape[1:])
	}
	return string(shape)
}

// runGroup runs members together and writes their responses. If the run fails, each member runs
// again alone: one member's data must not spoil its neighbours. If they must not run twice, all of
// them fail.
func (s *Server) runGroup(ctx context.Context, group []member, responses []frame.Response, spent *Spent) {
	once := slices.ContainsFunc(group, func(m member) bool { return m.once })
	if once {
		ctx = frame.WithOnce(ctx)
	}
	parts := s.parts(group)
	inputs, rows, release := s.join(group)
	outputs, failed, returned, err := s.run(parts.with(ctx), rows, inputs, due(group), spent)
	release()
	defer returned()
	switch {
	case err == nil:
		for i, m := range group {
			if parts != nil && parts.takes[i] {
				responses[m.at] = parts.respond(i, failed[i])
				continue
			}
			if failed[i] != nil {
				responses[m.at] = protocol.Failure(statusOf(failed[i]), failed[i])
				continue
			}
			s.put(m, s.respond(m, outputs[i]), responses)
		}
	case errors.Is(err, errLate):
		for _, m := range group {
			responses[m.at] = again(protocol.Failure(http.StatusServiceUnavailable, err))
		}
	case ctx.Err() != nil:
		for _, m := range group {
			responses[m.at] = protocol.Failure(http.StatusServiceUnavailable, errors.New("the request was cancelled before it ran"))
		}
	case len(group) == 1 || lost(err) || parts != nil && parts.begun:
		for _, m := range group {
			responses[m.at] = protocol.Failure(statusOf(err), err)
		}
	case once:
		err = fmt.Errorf("the batch that this request was in failed, and no request of this function runs twice: %w", err)
		for _, m := range group { // Whose inputs are the cause is not known.
			responses[m.at] = protocol.Failure(http.StatusInternalServerError, err)
		}
	default:
		s.metrics.retries.Inc()
		for i := range group {
			s.runGroup(ctx, group[i:i+1], responses, spent)
		}
	}
}

// due is the time from which no member of a group needs an answer, zero if one always does.
func due(group []member) (last time.Time) {
	for _, m := range group {
		if m.due.IsZero() {
			return m.due
		}
		if m.due.After(last) {
			last = m.due
		}
	}
	return last
}

// join concatenates the members' inputs along the batch dimension. It returns the
// inputs of a single member without a copy. Call release to return the buffers once
// the inputs are no longer needed.
func (s *Server) join(group []member) (inputs []tensor.Tensor, rows []int, release func()) {
	total := 0
	for _, m := range group {
		rows = append(rows, m.Rows)
		total += m.Rows
	}
	if len(group) == 1 {
		return group[0].Inputs, rows, func() {}
	}
	inputs = slices.Clone(group[0].Inputs)
	releases := make([]func(), len(inputs))
	for i := range inputs {
		size := 0
		for _, m := range group {
			size += len(m.Inputs[i].Data)
		}
		buffer, release := s.inputBuffer(size)
		releases[i] = release
		data := buffer[:0]
		for _, m := range group {
			data = append(data, m.Inputs[i].Data...)
		}
		inputs[i].Data = data
		inputs[i].Shape = slices.Clone(inputs[i].Shape)
		inputs[i].Shape[0] = int64(total)
	}
	return inputs, rows, func() {
		for _, release := range releases {
			release()
		}
	}
}

// run waits for this batch's turn and runs its members on the engine, unless its turn
// comes after due. A run on a distributed engine ends at due with errLate. rows holds each
// member's number of rows. A single member runs at most MaxBatch rows at a time. The
// outputs are valid until release is called; release is never nil.
func (s *Server) run(ctx context.Context, rows []int, inputs []tensor.Tensor, due time.Time, spent *Spent) (outputs [][]tensor.Tensor, failed []error, release func(), err error) {
	if s.distributed && !due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, due, errLate)
		defer cancel()
		defer func() {
			if err != nil && errors.Is(context.Cause(ctx), errLate) {
				err = errLate
			}
		}()
	}
	arrived := time.Now()
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		spent.Waited += time.Since(arrived)
		return nil, nil, func() {}, ctx.Err()
	}
	defer func() { <-s.turn }()
	now := time.Now()
	spent.Waited += now.Sub(arrived)
	if !due.IsZero() && now.After(due) {
		return nil, nil, func() {}, errLate
	}
	if len(rows) > 1 || rows[0] <= s.options.MaxBatch {
		var exec time.Duration
		outputs, failed, release, exec, err = s.execute(ctx, rows, inputs)
		spent.Exec += exec
		return outputs, failed, release, err
	}
	all, exec, err := s.pieces(ctx, rows[0], inputs)
	spent.Exec += exec
	if err != nil {
		return nil, nil, func() {}, err
	}
	return [][]tensor.Tensor{all}, make([]error, 1), func() {}, nil
}

// pieces runs a member that has more than MaxBatch rows, MaxBatch rows at a time.
func (s *Server) pieces(ctx context.Context, rows int, inputs []tensor.Tensor) (all []tensor.Tensor, total time.Duration, err error) {
	var sizes []int
	for from := 0; from < rows; from += s.options.MaxBatch {
		sizes = append(sizes, min(s.options.MaxBatch, rows-from))
	}
	split, err := tensor.Split(inputs, sizes)
	if err != nil {
		return nil, 0, err
	}
	for i, n := range sizes {
		outputs, failed, release, exec, err := s.execute(ctx, []int{n}, split[i])
		// Release only on return: extend does not copy the first part until a second comes.
		defer release()
		total += exec
		if err == nil {
			err = failed[0]
		}
		if err != nil {
			return nil, total, err
		}
		if all, err = extend(all, outputs[0]); err != nil {
			return nil, total, err
		}
	}
	return all, total, nil
}

// execute runs one batch and splits the outputs by member. The outputs are valid until
// release is called; release is never nil.
func (s *Server) execute(ctx context.Context, rows []int, inputs []tensor.Tensor) (outputs [][]tensor.Tensor, failed []error, release func(), exec time.Duration, err error) {
	release = func() {}
	defer s.recovered(&err)
	total := 0
	for _, n := range rows {
		total += n
	}
	start := time.Now()
	threads := s.options.Threads
	if s.distributed { // It computes on further threads, which exchange tensors.
		threads = 0
	}
	if engine, ok := s.engine.(RequestEngine); ok {
		s.processor.running(threads, func() {
			outputs, failed, release, err = runRequests(ctx, engine, rows, inputs)
		})
		exec = time.Since(start)
		s.metrics.run(total, exec)
		return outputs, failed, release, exec, err
	}
	var whole []tensor.Tensor
	s.processor.running(threads, func() { whole, err = s.engine.Run(ctx, total, inputs) })
	exec = time.Since(start)
	s.metrics.run(total, exec)
	if err == nil && len(whole) != len(s.model.Outputs) {
		err = fmt.Errorf("the engine returned %d outputs, but the model has %d", len(whole), len(s.model.Outputs))
	}
	if err == nil {
		if outputs, err = tensor.Split(whole, rows); err != nil {
			err = fmt.Errorf("output %w", err)
		}
	}
	return outputs, make([]error, len(rows)), release, exec, err
}

// extend appends the rows of more to those of all.
func extend(all, more []tensor.Tensor) ([]tensor.Tensor, error) {
	if all == nil {
		return more, nil
	}
	for i, t := range more {
		if !slices.Equal(all[i].Shape[1:], t.Shape[1:]) {
			return nil, fmt.Errorf("output %q has rows of different shapes, %v and %v", t.Name, all[i].Shape[1:], t.Shape[1:])
		}
		all[i].Data = append(all[i].Data, t.Data...)
		all[i].Shape[0] += t.Shape[0]
	}
	return all, nil
}
