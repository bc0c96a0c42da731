package build

import (
	"testing"
	"time"
)

func TestPaceOfABody(t *testing.T) {
	began := time.Unix(1000, 0)
	p := paced{began: began, last: began.Add(time.Minute)}
	for read, want := range map[int64]time.Duration{
		0: 10 * time.Second, 1: 10*time.Second + time.Second/minRate, minRate: 11 * time.Second,
		5 * minRate: 15 * time.Second, 1 << 30: time.Minute,
	} {
		p.read = read
		if got := p.due().Sub(began); got != want {
			t.Errorf("after %d bytes, the next are due %v after the beginning, want %v", read, got, want)
		}
	}
}
