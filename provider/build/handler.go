package build

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/provider/web"
)

// refusal is an error with a status code, for answers before the signature is checked.
type refusal struct {
	code int
	why  string
}

func (r *refusal) Error() string { return r.why }

func refuse(code int, format string, args ...any) error {
	return &refusal{code: code, why: fmt.Sprintf(format, args...)}
}

// ServeHTTP answers POST /build; without a secret it says that the builder is off. Until the signature is found right, an error is a status
// of 400 or more with a sentence. After that the answer is 200 and a result. With "Accept:
// application/x-ndjson" there are several results, and the last has the status success
// or failed.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(h.options.Secret) == 0 {
		Disabled(w, r)
		return
	}
	body, err := h.receive(w, r)
	if err != nil {
		h.refuseRequest(w, r, err)
		return
	}
	defer body.Close()
	if err := h.take(r.Context()); err != nil {
		h.refuseRequest(w, r, err)
		return
	}
	defer h.release()
	answer := newAnswer(w, r)
	began := time.Now()
	image, err := h.build(r.Context(), body, answer)
	log := h.options.Logger.With().Str("image", image).Dur("took_ms", time.Since(began)).Logger()
	if err != nil {
		log.Warn().Err(err).Msg("build failed")
		answer.fail(image, err)
		return
	}
	log.Info().Msg("built a bundle")
	answer.succeed(image)
}

// receive returns the body as a file without a name, positioned at its beginning, after
// it has checked the signature.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (_ *stored, err error) {
	if r.Method != http.MethodPost {
		return nil, refuse(http.StatusMethodNotAllowed, "the method must be POST")
	}
	signature, err := parseSignature(r.Header.Get(signatureHeader))
	if err != nil {
		return nil, err
	}
	return h.store(w, r, signature)
}

// store returns the body as a file without a name, positioned at its beginning. It checks a signature that is not nil.
func (h *Handler) store(w http.ResponseWriter, r *http.Request, signature []byte) (_ *stored, err error) {
	if r.ContentLength > h.options.MaxBytes {
		return nil, h.tooLarge()
	}
	if err := h.room(2 * max(r.ContentLength, 0)); err != nil {
		return nil, err
	}
	control, began := http.NewResponseController(w), time.Now()
	paced := &paced{body: r.Body, connection: control, began: began, last: began.Add(h.options.BodyTimeout)}
	body, err := h.spool(paced, h.stored.Charge(r, ""), signature)
	if err != nil {
		return nil, err
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, errors.Join(err, body.Close())
	}
	return body, nil
}

// take waits for a slot for at most BodyTimeout. release gives it back.
func (h *Handler) take(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, h.options.BodyTimeout)
	defer cancel()
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-waiting.Done():
		if ctx.Err() != nil {
			return refuse(web.StatusHungUp, "the client went away while other builds ran")
		}
		return refuse(http.StatusServiceUnavailable, "other builds took too long; try again")
	}
}

func (h *Handler) release() { <-h.slots }

func (h *Handler) tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d MiB, the builder's limit; leave out what the function does not need, or start the provider with a higher --max-build", h.options.MaxBytes>>20)
}

// room refuses a build that needs more bytes than the disk has free.
func (h *Handler) room(need int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(h.options.Root, &disk); err != nil {
		return fmt.Errorf("free space of %s: %w", h.options.Root, err)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < need+h.reserve {
		return refuse(http.StatusInsufficientStorage, "the disk of the bundles has %d MiB free, and this build needs %d; remove bundles that are no longer deployed", free>>20, (need+h.reserve)>>20)
	}
	return nil
}

// refuseRequest writes the error of receive as the answer.
func (h *Handler) refuseRequest(w http.ResponseWriter, r *http.Request, err error) {
	var why *refusal
	if !errors.As(err, &why) {
		why = &refusal{code: http.StatusInternalServerError, why: err.Error()}
	}
	h.options.Logger.Warn().Str("from", r.RemoteAddr).Int("code", why.code).Str("why", why.why).Msg("build refused")
	switch why.code {
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "10")
	}
	// Do not read the rest of the body.
	w.Header().Set("Connection", "close")
	http.Error(w, why.why, why.code)
}
