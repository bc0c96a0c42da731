package build

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/web"
)

// signatureHeader holds "sha256=" and the body's HMAC in hexadecimal digits.
const signatureHeader = "X-Build-Signature"

// parseSignature returns the HMAC in the header.
func parseSignature(header string) ([]byte, error) {
	if header == "" {
		return nil, refuse(http.StatusUnauthorized, "%s is missing; give faas-cli the builder's secret with --payload-secret", signatureHeader)
	}
	digits, ok := strings.CutPrefix(header, "sha256=")
	signature, err := hex.DecodeString(digits)
	if !ok || err != nil || len(signature) != sha256.Size {
		return nil, refuse(http.StatusUnauthorized, "%s must be sha256= and 64 hexadecimal digits", signatureHeader)
	}
	return signature, nil
}

// stored is a body on the disk, in a file without a name. The file disappears with the
// process, whatever happens.
type stored struct {
	*os.File
	space web.Charge
	// sum is the SHA-256 of a body whose signature is not checked, in hexadecimal digits.
	sum string
}

// Close removes the body and gives back its space.
func (s *stored) Close() error {
	defer s.space.Release()
	return s.File.Close()
}

// spool stores a body and checks its signature on the way, unless that is nil. space is its charge, which holds
// nothing yet.
func (h *Handler) spool(body io.Reader, space web.Charge, signature []byte) (_ *stored, err error) {
	unit := max(maxStored*h.options.MaxBytes/maxUploads, 1)
	if err := space.Take(unit); err != nil {
		return nil, err
	}
	f, err := nameless(filepath.Join(h.options.Root, bundle.StagingDir))
	if err != nil {
		space.Release()
		return nil, noRoom(err)
	}
	s := &stored{File: f, space: space}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	digest := sha256.New()
	if signature != nil {
		digest = hmac.New(sha256.New, h.options.Secret)
	}
	to := &spooling{stored: s, digest: digest, room: h.room, unit: unit, left: unit}
	// One more byte distinguishes a body that is too large from one that just fits.
	n, err := io.Copy(to, io.LimitReader(body, h.options.MaxBytes+1))
	switch {
	case err != nil:
		return nil, bodyError(err)
	case n > h.options.MaxBytes:
		return nil, h.tooLarge()
	case signature != nil && !hmac.Equal(digest.Sum(nil), signature):
		return nil, refuse(http.StatusForbidden, "%s does not fit the body; is faas-cli's --payload-secret the provider's?", signatureHeader)
	}
	if signature == nil {
		s.sum = hex.EncodeToString(digest.Sum(nil))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return s, nil
}

// spooling writes to a file and a digest. It marks errors of the disk, to distinguish
// them from errors of the connection.
type spooling struct {
	stored *stored
	digest io.Writer
	// The body takes space in steps of unit bytes; left is what is left of the last step.
	unit, left int64
	// room checks the disk every roomEvery bytes, because the body's size need not be
	// known. next is the number of bytes until the next check.
	room func(bytes int64) error
	next int
}

// roomEvery is the number of bytes between two checks of the disk: 8 MiB.
const roomEvery = 8 << 20

func (s *spooling) Write(p []byte) (int, error) {
	if s.next -= len(p); s.next < 0 {
		s.next = roomEvery
		if err := s.room(0); err != nil {
			return 0, err
		}
	}
	for s.left -= int64(len(p)); s.left < 0; s.left += s.unit {
		if err := s.stored.space.Take(s.unit); err != nil {
			return 0, err
		}
	}
	s.digest.Write(p) // A hash never fails.
	n, err := s.stored.Write(p)
	if err != nil {
		err = noRoom(err)
	}
	return n, err
}

// noRoom turns an error of the disk into an answer.
func noRoom(err error) error {
	code := http.StatusInternalServerError
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		code = http.StatusInsufficientStorage
	}
	return refuse(code, "the context cannot be stored: %v", err)
}

func bodyError(err error) error {
	var known *refusal
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the context took too long to arrive; send at least 64 KiB/s")
	}
	return refuse(http.StatusBadRequest, "the context did not arrive: %v", err)
}

// nameless opens a new file in dir and removes its name: it is gone once it is closed.
func nameless(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, "body-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
