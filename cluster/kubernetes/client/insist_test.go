package client

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

func TestInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		began, tries := time.Now(), 0
		err := Insist(t.Context(), zerolog.New(&out), func(context.Context) error {
			if tries++; tries <= 20 {
				return errors.New("no resource functions")
			}
			return nil
		})
		if lines := strings.Count(out.String(), "\n"); err != nil || lines != 1 || time.Since(began) != 20*startPause {
			t.Errorf("%v after %v, with %d lines", err, time.Since(began), lines)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second+startPause/2)
		defer cancel()
		err = Insist(ctx, zerolog.Nop(), func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(startPause):
				return errors.New("no resource functions")
			}
		})
		if err == nil || err.Error() != "no resource functions" {
			t.Errorf("the error is %v, want the reason", err)
		}
	})
}
