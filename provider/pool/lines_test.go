package pool

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/decisions"
)

// Lines of a log name the members of the pool that they are about.
func TestLines(t *testing.T) {
	const pool = "shared-00.pool.n"
	l, out := decisions.NewLog(), &bytes.Buffer{}
	to := Lines{To: out, Members: l.Members}
	log := zerolog.New(to)
	log.Info().Str("function", "f.n").Msg("its own")
	log.Info().Str("function", pool).Msg("nobody's")
	l.Share(pool, []string{"b.n", "a.n"})
	log.Info().Str("function", pool).Int("n", 1).Msg("theirs")
	for _, odd := range []string{`{"function":"shared-00`, "", `{"function":"shared-"}` + "\n"} {
		if n, err := to.Write([]byte(odd)); n != len(odd) || err != nil {
			t.Errorf("%q: %d, %v", odd, n, err)
		}
	}
	want := `{"level":"info","function":"f.n","message":"its own"}
{"level":"info","function":"shared-00.pool.n","message":"nobody's"}
{"level":"info","function":"shared-00.pool.n","members":["a.n","b.n"],"n":1,"message":"theirs"}
{"function":"shared-00{"function":"shared-"}
`
	if got := out.String(); got != want {
		t.Errorf("%s", got)
	}
}
