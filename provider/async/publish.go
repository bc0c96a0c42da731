package async

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxAccepting is the number of a gateway's messages that may be on their way to the
// disk. The disk takes many more in the time that each message has. Further messages wait
// in the subscription.
const maxAccepting = 2048

// unavailable returns the answer to a request that cannot be stored now.
func unavailable(why error) *web.Error {
	return web.Unavailable(2*time.Second, "the request could not be queued: %v", why)
}

// Enqueue stores a request. If it returns nil, the request will be executed. id is that by which
// clients may ask for it, "" if the server has no room for states. The error is
// a *web.Error: 400 for a request that cannot be executed, 404 for a function that is not
// deployed, 413 for a request that is too large, 503 if it cannot be stored now.
func (q *Queue) Enqueue(ctx context.Context, r *types.QueueRequest) (id string, err error) {
	checked := &queue.Request{QueueRequest: *r}
	if err := q.check(checked); err != nil {
		return "", err
	}
	data, err := queue.EncodeRequest(&checked.QueueRequest)
	if err != nil {
		return "", web.Refuse(http.StatusBadRequest, "%v", err)
	}
	to, err := q.route(checked.Name, checked.Header, time.Now())
	if err != nil {
		return "", err
	}
	to.id = byNumber
	future, err := q.publish(to, data, "")
	if err != nil {
		return "", err
	}
	ack, err := q.await(ctx.Done(), future)
	if err != nil {
		return "", err
	}
	q.stored(to)
	return q.broker.ID(ack.Sequence), nil
}

// troublePause is the time between two looks whether a message is still being stored.
const troublePause = 100 * time.Millisecond

// await waits until a message is stored. The error says why it is not, or that this is not
// known, because the server is in trouble or over is closed.
func (q *Queue) await(over <-chan struct{}, future jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	ack, err := awaitAck(over, future, q.broker.Trouble)
	switch {
	case errors.Is(err, errUnknown):
		return nil, unavailable(err)
	case err != nil:
		return nil, q.notStored(err)
	}
	return ack, nil
}

// awaitAck is await with a function that returns the server's trouble, nil if there is none.
func awaitAck(over <-chan struct{}, future jetstream.PubAckFuture, trouble func() error) (*jetstream.PubAck, error) {
	look := time.Tick(troublePause)
	for {
		select {
		case ack := <-future.Ok():
			return ack, nil
		case err := <-future.Err():
			return nil, err
		case <-look:
			if err := trouble(); err != nil {
				return nil, fmt.Errorf("%w: %w", errUnknown, err)
			}
		case <-over:
			return nil, errUnknown
		}
	}
}

// errUnknown says that a message may be stored or not.
var errUnknown = errors.New("it may be queued or not")

// check refuses a request that could not be executed.
func (q *Queue) check(r *queue.Request) error {
	if err := queue.CheckRequest(r); err != nil {
		return notQueued(err)
	}
	return q.known(r.Name)
}

// notQueued returns the answer to a request that could not be executed.
func notQueued(err error) error {
	return web.Refuse(http.StatusBadRequest, "the request cannot be queued: %v", err)
}

// known refuses a function that is not deployed.
func (q *Queue) known(name string) error {
	if _, ok := q.options.Functions.Annotations(name); !ok {
		function, namespace := queue.SplitName(name)
		return web.Refuse(http.StatusNotFound, "there is no function %q in namespace %q", function, namespace)
	}
	return nil
}

var errLeaving = errors.New("the provider is shutting down")

// over reports whether a channel is closed.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// publish sends a message to the stream. A second message with the same id is
// not stored; "" is no id.
func (q *Queue) publish(to destination, data []byte, id string) (jetstream.PubAckFuture, error) {
	if over(q.closed) {
		return nil, unavailable(errLeaving)
	}
	if err := q.broker.Usable(); err != nil {
		return nil, unavailable(err)
	}
	if limit := q.broker.MaxPayload() - headroom; int64(len(data)) > limit {
		return nil, web.Refuse(http.StatusRequestEntityTooLarge, "the request takes %d bytes in the queue, the limit is %d", len(data), limit)
	}
	m := &nats.Msg{Subject: to.subject(), Data: data, Header: to.header(id)}
	future, err := q.broker.JetStream().PublishMsgAsync(m, jetstream.WithStallWait(time.Second), jetstream.WithRetryAttempts(0))
	if err != nil {
		return nil, q.notStored(err)
	}
	return future, nil
}

// headroom is the most bytes that a message's subject and headers take, including those
// of a dead letter.
const headroom = 16 << 10

// stored counts a stored message and wakes its worker.
func (q *Queue) stored(to destination) {
	q.metrics.Accepted(to.name)
	q.wake(to)
}

// notStored returns the answer for a message that was not stored. It lets the broker
// check itself, unless the queue is full or overrun.
func (q *Queue) notStored(err error) *web.Error {
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api) && api.ErrorCode == codeStoreFailed:
		return unavailable(fmt.Errorf("the queue is full (%s); it takes requests again when some have been executed", api.Description))
	case errors.Is(err, jetstream.ErrTooManyStalledMsgs):
		return unavailable(errors.New("too many requests come at once"))
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		q.broker.Remake()
		return unavailable(errors.New("the queue does not take such requests yet"))
	}
	q.broker.Check()
	if errors.Is(err, jetstream.ErrAsyncPublishTimeout) {
		err = errors.New("the queue's disk or server does not answer in time")
	}
	return unavailable(err)
}

// codeStoreFailed is JetStream's error code for a message that a stream does not store,
// for example because the stream is full.
const codeStoreFailed = 10077

// publication is a gateway's message on its way to the disk.
type publication struct {
	to     destination
	future jetstream.PubAckFuture
	done   func(error)
}

// take stores a gateway's message. It is the Take of stan.Options. It refuses what Enqueue refuses.
func (q *Queue) take(data []byte, done func(error)) {
	r, err := queue.DecodeHead(data)
	if err != nil {
		done(notQueued(err))
		return
	}
	if err := q.known(r.Name); err != nil {
		done(err)
		return
	}
	if data, err = q.admit(r, data); err != nil {
		done(err)
		return
	}
	to, err := q.route(r.Name, r.Header, time.Now())
	if err != nil {
		done(err)
		return
	}
	if !q.enter() {
		done(unavailable(errLeaving))
		return
	}
	future, err := q.publish(to, data, "")
	if err != nil {
		q.storing.Done()
		done(err)
		return
	}
	select {
	case q.accepted <- publication{to, future, done}:
	case <-q.closed:
		q.storing.Done()
	}
}

// admitTime bounds how long a gateway's message waits to be admitted.
const admitTime = time.Second

// admit refuses a gateway's message whose sender may not call the function. It returns the message
// without the sender's key.
func (q *Queue) admit(r *queue.Request, data []byte) ([]byte, error) {
	if q.options.Admit == nil {
		return data, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), admitTime)
	defer cancel()
	before := len(r.Header)
	if err := q.options.Admit(ctx, r.Name, r.Header); err != nil || len(r.Header) == before {
		return data, err
	}
	whole, err := queue.DecodeRequest(data)
	if err != nil {
		return nil, notQueued(err)
	}
	whole.Header = r.Header
	if data, err = queue.EncodeRequest(&whole.QueueRequest); err != nil {
		return nil, notQueued(err)
	}
	return data, nil
}

// enter counts a message as being stored, unless gateways are refused.
func (q *Queue) enter() bool {
	q.intake.RLock()
	defer q.intake.RUnlock()
	if over(q.refusing) {
		return false
	}
	q.storing.Add(1)
	return true
}

// acknowledge answers the gateway when its messages are stored. Messages are stored in
// the order in which they were sent, so one goroutine waits for all of them.
func (q *Queue) acknowledge() {
	for {
		select {
		case p := <-q.accepted:
			q.acknowledgeOne(p)
		case <-q.closed:
			q.abandon()
			return
		}
	}
}

// abandon answers the messages that are still being stored.
func (q *Queue) abandon() {
	for {
		select {
		case p := <-q.accepted:
			p.done(unavailable(errUnknown))
			q.storing.Done()
		default:
			return
		}
	}
}

func (q *Queue) acknowledgeOne(p publication) {
	defer q.storing.Done()
	_, err := q.await(q.closed, p.future)
	p.done(err)
	if err == nil {
		q.stored(p.to)
	}
}

// sendAgain stores a dead letter's message in the queue. It is a Sender.
func (q *Queue) sendAgain(ctx context.Context, id string, l DeadLetter, data []byte) error {
	request, err := queue.DecodeRequest(data)
	if err != nil {
		return web.Refuse(http.StatusBadRequest, "the letter's request cannot be executed: %v", err)
	}
	if err := q.known(request.Name); err != nil {
		return web.Refuse(http.StatusNotFound, "%v; deploy it first", err)
	}
	to, err := q.route(request.Name, request.Header, time.Now())
	if err != nil {
		return err
	}
	if q.broker.ID(0) == "" {
		l.ID = "" // This server has no room for states.
	}
	to.id = l.ID
	before, err := q.follower.known(ctx, l.ID)
	if err != nil {
		return err
	}
	future, err := q.publish(to, data, id)
	if err != nil {
		return err
	}
	ack, err := q.await(ctx.Done(), future)
	if err != nil {
		return err
	}
	if !ack.Duplicate {
		q.stored(to)
	}
	if err := q.follower.replayed(ctx, l, ack.Sequence, before); err != nil {
		// The letter goes all the same: its message is in the queue, and another replay would store a second one.
		q.log.Warn().Err(err).Str("function", request.Name).
			Msg("cannot store that a dead letter was replayed; its state stays dead until the request has ended")
	}
	return nil
}
