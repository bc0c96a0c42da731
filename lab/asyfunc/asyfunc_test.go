package asyfunc

import (
	"os"
	"testing"
	"time"
)

func TestTmp(t *testing.T) {
	l, err := Twitter(2*time.Minute, 1)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	r, err := Run(t.Context(), Options{Command: "x", Law: DefaultLaw(), Load: l, Nodes: Table1(32)})
	if err != nil {
		t.Fatal(err)
	}
	r.Table(os.Stdout)
	t.Log(time.Since(at))
}
