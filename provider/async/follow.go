package async

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

// single begins the paths of single requests: GET of it and an ID is a Progress, GET of "/result" below that
// the kept result, and DELETE cancels. Invocations are POSTs, so no ID is taken for a function's name.
const single = "/async-function/"

// controlSubject is where a replica asks the others about a message that it does not have in hand.
const controlSubject = "faas-infer.async.control"

// controlPatience is how long the others may take to answer. Only the one that has the message answers.
const controlPatience = 300 * time.Millisecond

// follower answers clients that have the ID of a request. Everybody who has it may ask for the request and
// cancel it, so IDs cannot be guessed: see [queue.Broker.ID].
type follower struct {
	broker *queue.Broker
	states *states
	hand   *inHand
	// several is Options.Several.
	several bool
	// cancelled counts a request that was cancelled in the queue.
	cancelled func()
}

// question is what one replica asks the others: for a message, and whether to cancel it.
type question struct {
	Sequence uint64 `json:"sequence"`
	Cancel   bool   `json:"cancel,omitempty"`
}

var errUnknownID = web.Refuse(http.StatusNotFound,
	"there is no asynchronous request with this ID, or what became of it is forgotten")

// serve answers GET and DELETE of single and below. path is what follows the ID.
func (f *follower) serve(w http.ResponseWriter, r *http.Request, id, path string) error {
	w.Header().Set("Cache-Control", "no-store")
	sequence, ok := f.broker.Sequence(id)
	if !ok || path != "/" && (path != "/result" || r.Method != http.MethodGet) {
		return errUnknownID
	}
	find := f.look
	if r.Method == http.MethodDelete {
		find = f.cancel
	}
	p, err := find(r.Context(), id, sequence)
	switch {
	case path == "/result" && errors.Is(err, errUnknownID):
		return adminUnavailable(f.states.resultOnly(r.Context(), w, id))
	case err != nil:
		return adminUnavailable(err)
	case path == "/result":
		return adminUnavailable(f.states.result(r.Context(), w, p))
	}
	return writeJSON(w, p)
}

// look returns what is known of a request.
func (f *follower) look(ctx context.Context, id string, sequence uint64) (Progress, error) {
	if p, ok := f.hand.look(sequence); ok {
		return p, nil
	}
	r, sequence, err := f.recorded(ctx, id, sequence)
	if err != nil || r.ended() {
		return r.Progress, err
	}
	if p, ok := f.hand.look(sequence); ok { // It was replayed.
		return p, nil
	}
	if p, ok := f.elsewhere(ctx, question{Sequence: sequence}); ok {
		return p, nil
	}
	return f.queued(ctx, r, sequence)
}

// recorded returns what is stored of a request, and the number of its message now.
func (f *follower) recorded(ctx context.Context, id string, sequence uint64) (record, uint64, error) {
	r, err := f.states.get(ctx, id)
	if r.Sequence != 0 {
		sequence = r.Sequence
	}
	r.ID = id
	return r, sequence, err
}

// queued returns what is known of a request that nobody has in hand. r is its record, perhaps a zero one
// with the ID.
func (f *follower) queued(ctx context.Context, r record, sequence uint64) (Progress, error) {
	work, err := f.broker.JetStream().Stream(ctx, queue.WorkStream)
	if err != nil {
		return Progress{}, err
	}
	m, err := work.GetMsg(ctx, sequence)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		// It has left the queue, perhaps since r was read.
		if r, err = f.states.get(ctx, r.ID); err == nil && !r.ended() {
			err = errUnknownID
		}
		return r.Progress, err
	case err != nil:
		return Progress{}, err
	case r.revision != 0:
		return r.Progress, nil
	}
	key, _ := keyOf(m.Subject)
	return Progress{ID: r.ID, Function: queue.FromSubjectKey(key), State: Queued, Queued: m.Time}, nil
}

// cancel cancels a request, and returns what is known of it then: its state says whether it was
// cancelled, now or before, or has ended otherwise.
func (f *follower) cancel(ctx context.Context, id string, sequence uint64) (Progress, error) {
	r, sequence, err := f.recorded(ctx, id, sequence)
	if err != nil || r.ended() {
		return r.Progress, err
	}
	if p, ok := f.hand.stop(sequence, time.Now()); ok {
		return p, nil
	}
	if p, ok := f.elsewhere(ctx, question{Sequence: sequence, Cancel: true}); ok {
		return p, nil
	}
	p, err := f.queued(ctx, r, sequence)
	if err != nil || p.ended() {
		return p, err
	}
	// A replica that gets the message from now on has heard that it is cancelled. A try that has ended
	// meanwhile has left a record before its message goes.
	work, err := f.broker.JetStream().Stream(ctx, queue.WorkStream)
	if err != nil {
		return p, err
	}
	if err := remove(ctx, work, sequence); errors.Is(err, ErrNoDeadLetter) {
		return f.queued(ctx, r, sequence)
	} else if err != nil {
		return p, err
	}
	p.State, p.Ended, p.Next = Cancelled, time.Now(), time.Time{}
	return f.ended(ctx, id, p, r)
}

// ended stores the end of a request whose message is gone, unless another end is stored: it returns that one
// then. r is the record that p was made from. The try that was the last one may leave a later record.
func (f *follower) ended(ctx context.Context, id string, p Progress, r record) (Progress, error) {
	for {
		end := record{Progress: p, Sequence: r.Sequence}
		err := f.states.put(ctx, end, jetstream.WithExpectLastSequencePerSubject(r.revision))
		if !overtaken(err) {
			f.cancelled()
			return p, err
		}
		if r, _, err = f.recorded(ctx, id, 0); err != nil || r.ended() {
			return r.Progress, err
		}
		p.Attempts, p.Started, p.Status, p.Detail = r.Attempts, r.Started, r.Status, r.Detail
	}
}

// overtaken reports whether a record was not stored because another one has been meanwhile.
func overtaken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// known returns the revision of what is stored of a request before it is replayed.
func (f *follower) known(ctx context.Context, id string) (uint64, error) {
	if id == "" {
		return 0, nil
	}
	r, err := f.states.get(ctx, id)
	return r.revision, err
}

// replayed stores that a dead letter is in the queue again under a number, unless its next try has ended already.
func (f *follower) replayed(ctx context.Context, l DeadLetter, sequence, before uint64) error {
	if l.ID == "" {
		return nil
	}
	p := Progress{ID: l.ID, Function: l.Function, State: Queued, Queued: time.Now()}
	err := f.states.put(ctx, record{Progress: p, Sequence: sequence}, jetstream.WithExpectLastSequencePerSubject(before))
	if overtaken(err) {
		return nil
	}
	return err
}

// listen answers the questions of other replicas.
func (f *follower) listen() error {
	if !f.several {
		return nil
	}
	_, err := f.broker.Publishing().Subscribe(controlSubject, func(m *nats.Msg) {
		var q question
		if json.Unmarshal(m.Data, &q) != nil {
			return
		}
		p, ok := f.hand.look(q.Sequence)
		if q.Cancel {
			p, ok = f.hand.stop(q.Sequence, time.Now())
		}
		if text, err := json.Marshal(p); ok && err == nil {
			_ = m.Respond(text) // The other one does not wait for long.
		}
	})
	return err
}

// elsewhere asks the other replicas for a message, and returns what the one says that has it in hand.
func (f *follower) elsewhere(ctx context.Context, q question) (p Progress, ok bool) {
	if !f.several {
		return Progress{}, false
	}
	text, err := json.Marshal(q)
	if err != nil {
		return Progress{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, controlPatience)
	defer cancel()
	m, err := f.broker.Publishing().RequestWithContext(ctx, controlSubject, text)
	return p, err == nil && json.Unmarshal(m.Data, &p) == nil
}
