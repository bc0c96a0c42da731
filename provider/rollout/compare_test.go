package rollout

import "testing"

func TestAlike(t *testing.T) {
	text := func(kind, body string) Answer { return Answer{200, kind, []byte(body)} }
	for _, c := range []struct {
		a, b Answer
		want bool
	}{
		{text("application/json", `{"outputs":[{"data":[1,2]}],"id":"a"}`), text("application/json", `{"id":"b","outputs":[{"data":[1.0001,2]}]}`), true},
		{text("application/json", `{"outputs":[{"data":[1,2]}]}`), text("application/json", `{"outputs":[{"data":[1,2.1]}]}`), false},
		{text("application/json", `{"outputs":[{"data":[1,2]}]}`), text("application/json", `{"outputs":[{"data":[1]}]}`), false},
		{text("application/json", `[1]`), text("application/json", `{`), false},
		{text("text/plain", "abcd"), text("text/plain", "abce"), false},
		{text("application/octet-stream", "\x00\x00\x80\x3f"), text("application/octet-stream", "\x01\x00\x80\x3f"), true},
		{text("application/octet-stream", "\x00\x00\x80\x3f"), text("application/octet-stream", "\x00\x00\x00\x40"), false},
		{Answer{200, "", nil}, Answer{404, "", nil}, false},
	} {
		if got := Alike(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a.Body, c.b.Body, got)
		}
	}
}
