package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal opens a new terminal; screen reads what is written to w.
func terminal(t *testing.T) (w, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	w, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w, screen
}

func TestOnATerminal(t *testing.T) {
	w, screen := terminal(t)
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(screen) // It ends with an error when the terminal is closed.
		shown <- string(text)
	}()
	draw := ProgressBar(w, "measuring")
	draw(0, 4)
	draw(1, 4)
	draw(4, 4)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if text := <-shown; !strings.Contains(text, "measuring") || !strings.Contains(text, "/4") {
		t.Errorf("the terminal shows %q", text)
	}
}

// Without a terminal nothing is drawn, because it would fill a log.
func TestElsewhere(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var buffer bytes.Buffer
	for _, w := range []io.Writer{file, &buffer, io.Discard} {
		draw := ProgressBar(w, "measuring")
		for i := range 5 {
			draw(i, 4)
		}
	}
	if info, err := file.Stat(); err != nil || info.Size() != 0 || buffer.Len() != 0 {
		t.Errorf("%d bytes in the file, %d in the buffer, %v", info.Size(), buffer.Len(), err)
	}
}
